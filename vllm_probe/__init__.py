"""vllm-probe: finds, measures and uses every accelerator of a machine."""
