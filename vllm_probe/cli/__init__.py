"""The command line: parses options, calls `vllm_probe.api`, renders what it returns."""
