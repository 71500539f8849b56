"""Vector width of a process: how far the libraries that compute may go.

They look once, when they are first used: ATen (`ATEN_CPU_CAPABILITY`, aten/src/ATen/native/DispatchStub.cpp of
https://github.com/pytorch/pytorch), oneDNN (`ONEDNN_MAX_CPU_ISA`,
https://uxlfoundation.github.io/oneDNN/dev_guide_cpu_dispatcher_control.html) and MKL (`MKL_ENABLE_INSTRUCTIONS`,
https://www.intel.com/content/www/us/en/docs/onemkl/developer-guide-linux/2024-2/instruction-set-specific-dispatch-on-intel-archs.html).
A limit names the best instruction set of its width; what the processor lacks of it is not used.
"""

from collections.abc import Iterable

_WIDEST = {"avx512": 16, "avx2": 8, "sse4_2": 4}

LIMITS = {
    8: {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2_VNNI_2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    4: {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
}
"""fp32 lanes to the variables that keep vectors at that width."""

CAPABILITIES = {8: "AVX2", 4: "DEFAULT"}
"""Limited lanes to ATen's word for what it then uses."""


def lanes_of(isa: Iterable[str]) -> tuple[int, ...]:
    """Widths that code can be limited to, the processor's own first; empty where there is no choice."""
    known = set(isa)
    widest = next((lanes for name, lanes in _WIDEST.items() if name in known), 0)
    narrower = [lanes for lanes in LIMITS if lanes < widest]
    return (widest, *narrower) if narrower else ()
