"""What every adapter must do, as checks that anyone can run."""

from vllm_probe.vendors.conformance.numerics import TOLERANCE, gate

__all__ = ["TOLERANCE", "gate"]
