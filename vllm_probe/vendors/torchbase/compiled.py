"""What a torch adapter compiles: regions of a model, and implementations of primitives."""

import logging
from collections.abc import Callable
from typing import Any

import torch

from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.primitive import Compiled, CompileHints, Primitive
from vllm_probe.core.system import Host
from vllm_probe.vendors.torchbase.compiling import Region, Toolchain, Workshop, unavailable
from vllm_probe.vendors.torchbase.keeping import key_of, open_folder
from vllm_probe.vendors.torchbase.rowwise import by_operators, in_halves, normed, quantized, turned

INDUCTOR = "inductor"
"""Name of the implementations that are compiled."""

_PLAIN = CompileHints()
_LOG = logging.getLogger(__name__)
_ROWWISE: dict[Primitive, tuple[Callable[..., Any], Callable[..., Any], tuple[int, ...]]] = {
    Primitive.ROPE: (in_halves, turned, (0, 1, 2)),
    Primitive.RMS_NORM: (by_operators, normed, (0,)),
    Primitive.QUANTIZE: (quantized, quantized, (0,)),
}
"""What runs until it is compiled, what is compiled, and the arguments that have rows."""


class CompilingAdapter(HardwareAdapter[torch.Tensor]):
    """An adapter whose device inductor may compile for."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._host = host
        self._workshop: Workshop | None = None
        self._regions: dict[tuple[Callable[..., Any], str, tuple[int, ...]], Region] = {}
        self._primitives: dict[Primitive, Callable[..., Any]] = {}
        self._toolchains: dict[tuple[str, ...], Toolchain | str] = {}

    def close(self) -> None:
        """As every adapter, and compiles no more."""
        if self._workshop:
            self._workshop.close()
            self._workshop = None
            self._regions.clear()
            self._primitives.clear()
        super().close()

    def compiles(self, primitive: Primitive) -> bool:
        """Whether `primitive` has an implementation that is compiled."""
        if self.compile_folder is None or primitive not in _ROWWISE:
            return False
        return isinstance(self._found(_PLAIN), Toolchain)

    def is_compiled(self, implementation: str) -> bool:
        """Those of inductor."""
        return implementation == INDUCTOR

    def _compiled(self, primitive: Primitive) -> Callable[..., Any]:
        if primitive not in self._primitives:
            eager, source, rows = _ROWWISE[primitive]
            hints = CompileHints(folder=self.compile_folder, rows=rows)
            self._primitives[primitive] = self._region(eager, source, hints).function
        return self._primitives[primitive]

    def _settle(self, timeout_s: float) -> bool:
        return self._workshop is None or self._workshop.finish(timeout_s)

    def _compile_model(self, function: Callable[..., Any], hints: CompileHints) -> Compiled:
        """By inductor, one region for each function; a second call with the same function gives the same region."""
        return self._region(function, function, hints)

    def _region(self, eager: Callable[..., Any], source: Callable[..., Any], hints: CompileHints) -> Compiled:
        toolchain = self._found(hints)
        if isinstance(toolchain, str):
            return Compiled(function=eager, reason=toolchain)
        if self._workshop is None:
            self._workshop = Workshop(open_folder(self._host, hints.folder, self._compile_key(toolchain)))
        key = (source, hints.mode, hints.rows)
        if key not in self._regions:
            self._regions[key] = Region(eager, source, hints, toolchain, self._workshop)
        reason = f"{toolchain.name}, mode {hints.mode}, {self._workshop.place.note}"
        return Compiled(function=self._regions[key], backend=INDUCTOR, reason=reason)

    def _found(self, hints: CompileHints) -> Toolchain | str:
        """The compiler, or why there is none, which is said once."""
        key = hints.matrix_instructions
        if key not in self._toolchains:
            missing = unavailable()
            found = f"this torch is too old: {missing}" if missing else self._toolchain(hints)
            if isinstance(found, str) and found not in self._toolchains.values():
                _LOG.warning("nothing is compiled: %s", found)
            self._toolchains[key] = found
        return self._toolchains[key]

    def _toolchain(self, hints: CompileHints) -> Toolchain | str:  # noqa: ARG002 - for those who override it
        """What inductor compiles with on this device, or why it cannot."""
        return "no compiler is known for this kind of device"

    def _compile_key(self, toolchain: Toolchain) -> str:
        """Changes with everything that compiled code depends on."""
        isa = self.device.details.get("isa")
        return key_of(
            {
                "adapter": type(self).__name__,
                "torch": f"{torch.__version__} {torch.version.git_version}",
                "compiler": toolchain.name,
                "device": f"{self._host.platform().machine} {self.device.arch} {isa}",
            }
        )
