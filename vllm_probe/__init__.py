"""vllm-probe: finds, measures and uses every accelerator of a machine.

The verbs are functions here: `vllm_probe.inventory()`, `doctor()`, `bench()`, `negotiate()`, `load_runtime()`.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm_probe.api import bench, doctor, inventory, load_runtime, negotiate  # noqa: TC004 - for type checkers

__all__ = ["bench", "doctor", "inventory", "load_runtime", "negotiate"]


class _Root(ModuleType):
    """Fetches the verbs from `api` on first use.

    `bench` and `negotiate` are also packages, and importing a package binds it on its parent: the binding of a
    verb's name is therefore ignored, and `from vllm_probe.bench import ...` is not affected by that.
    """

    def __getattr__(self, name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        from vllm_probe import api

        return getattr(api, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in __all__:
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Root
