"""A runtime config as the files of other systems: vLLM, Docker, Compose, Kubernetes."""
