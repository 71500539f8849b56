"""What every adapter must do, as checks that anyone can run."""

from vllm_probe.vendors.conformance.numerics import TOLERANCE, gate
from vllm_probe.vendors.conformance.suite import ConformanceReport, Result, run_suite

__all__ = ["TOLERANCE", "ConformanceReport", "Result", "gate", "run_suite"]
