"""What every adapter must do, as checks that anyone can run."""

from vllm_probe.vendors.conformance.cases import gate
from vllm_probe.vendors.conformance.suite import ConformanceReport, Result, run_suite

__all__ = ["ConformanceReport", "Result", "gate", "run_suite"]
