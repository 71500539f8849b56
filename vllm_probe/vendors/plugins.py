"""Finds vendor plug-ins in our own folder and in other wheels; a bad one is refused by name and disturbs nothing."""

import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Self, TypeAlias, TypeVar

from vllm_probe.core import codec
from vllm_probe.core.errors import BadUsage, SchemaViolation
from vllm_probe.core.plugin import API_VERSION, ENTRY_POINT_GROUP, VendorPlugin

T = TypeVar("T")
_HERE = Path(__file__).parent
_ONLY_WHEN_NAMED = frozenset({"null"})
_Source: TypeAlias = tuple[str, str, Callable[[], object]]
"""Vendor name, distribution, and what loads the plug-in object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedPlugin:
    """A plug-in that was not registered.

    Attributes:
        name: name of its folder or entry point.
        distribution: installed package that brings it.
        id: row of our own findings, such as `PLG-01`.
        reason: what is wrong with it, one sentence.
        evidence: what was seen, the traceback included.
    """

    name: str
    distribution: str
    id: str
    reason: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Raised:
    """What the code of a plug-in raised.

    Attributes:
        reason: the exception in a few words.
        traceback: where it came from.
    """

    reason: str
    traceback: str

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """What is kept of `error`."""
        import traceback

        reason = f"raised {type(error).__name__}: {error}".removesuffix(": ")
        return cls(reason, "".join(traceback.format_exception(error)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """What is installed.

    Attributes:
        plugins: those that are fit for use, ours first.
        refused: the others.
        distributions: plug-in name to the installed package that brings it.
    """

    plugins: tuple[VendorPlugin, ...]
    refused: tuple[RefusedPlugin, ...]
    distributions: dict[str, str]


def discover_plugins(allowed: str | None) -> Discovery:
    """The plug-ins of this installation.

    `allowed` is the value of `VLLM_PROBE_PLUGINS`: vendor names between commas; null or blank stands for all but
    `null`. A plug-in that is not allowed is not imported.

    Raises:
        BadUsage: a name in `allowed` belongs to no plug-in.
    """
    names = frozenset(name.strip() for name in (allowed or "").split(",") if name.strip())
    sources = list(_folders())
    if not names or not names <= {name for name, _, _ in sources}:
        sources += _entry_points()
    if unknown := sorted(names - {name for name, _, _ in sources}):
        raise BadUsage(
            f"VLLM_PROBE_PLUGINS names {unknown[0]!r}, and no vendor plug-in is called that",
            hint=f"the plug-ins here are {', '.join(sorted({name for name, _, _ in sources}))}",
        )
    plugins: dict[str, VendorPlugin] = {}
    refused: list[RefusedPlugin] = []
    distributions: dict[str, str] = {}
    for name, distribution, load in sources:
        if name not in names and (names or name in _ONLY_WHEN_NAMED):
            continue
        outcome = _register(name, distribution, load, plugins)
        if isinstance(outcome, RefusedPlugin):
            refused.append(outcome)
        else:
            plugins[name] = outcome
            distributions[name] = distribution
    return Discovery(plugins=tuple(plugins.values()), refused=tuple(refused), distributions=distributions)


def _folders() -> Iterator[_Source]:
    for path in sorted(_HERE.iterdir()):
        if (path / "probe.py").is_file():
            yield path.name, "vllm-probe", partial(_built_in, path.name)


def _built_in(name: str) -> object:
    return import_module(f"{__package__}.{name}").PLUGIN


def _entry_points() -> Iterator[_Source]:
    """Plug-ins of other wheels; importlib.metadata takes 20 ms to import, so one must be there first."""
    if not any(map(_names_group, sys.path)):
        return
    from importlib.metadata import entry_points

    for entry in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name):
        yield entry.name, entry.dist.name if entry.dist else entry.value, entry.load


def _names_group(folder: str) -> bool:
    for file in Path(folder).glob("*-info/entry_points.txt"):
        with suppress(OSError):
            if ENTRY_POINT_GROUP.encode() in file.read_bytes():
                return True
    return False


class _TorchGuard:
    """Stops the first import of torch, which takes longer than any command without it may."""

    def __init__(self) -> None:
        self.asked = False

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:  # noqa: ARG002 - a finder
        """Nothing, so that the next finder is asked, unless `name` is torch."""
        if name == "torch":
            self.asked = True
            raise ModuleNotFoundError("torch may not be imported by a plug-in that is registered", name=name)


def apart(call: Callable[[], T]) -> "T | Raised":
    """What `call` gives or raises, in a thread of its own; what it prints goes to stderr.

    A `KeyboardInterrupt` there is the plug-in's: Ctrl-C reaches the main thread, which waits here.
    """
    outcome: list[T | Raised] = []

    def run() -> None:
        try:
            outcome.append(call())
        except BaseException as error:  # noqa: BLE001 - isolation point: a plug-in may raise anything
            outcome.append(Raised.of(error))

    thread = Thread(target=run, daemon=True)
    with redirect_stdout(sys.stderr):
        thread.start()
        thread.join()
    return outcome[0]


def _register(
    name: str, distribution: str, load: Callable[[], object], known: dict[str, VendorPlugin]
) -> VendorPlugin | RefusedPlugin:
    def refuse(row: str, reason: str, *evidence: str) -> RefusedPlugin:
        return RefusedPlugin(name=name, distribution=distribution, id=row, reason=reason, evidence=evidence)

    guard = _TorchGuard()
    sys.meta_path.insert(0, guard)
    try:
        found = apart(lambda: _judged(name, load(), known))
    finally:
        sys.meta_path.remove(guard)
    evidence = (found.traceback,) if isinstance(found, Raised) else ()
    if guard.asked:
        return refuse("PLG-03", "imports torch when it is registered", *evidence)
    if isinstance(found, Raised):
        return refuse("PLG-02", found.reason, *evidence)
    return found if isinstance(found, VendorPlugin) else refuse(*found)


def _judged(name: str, plugin: object, known: dict[str, VendorPlugin]) -> VendorPlugin | tuple[str, str]:
    """`plugin` when it keeps the contract, else the row of what it breaks and the reason."""
    version = getattr(plugin, "api_version", API_VERSION)
    if version != API_VERSION:
        return "PLG-01", f"is for plug-in contract {version!r}, this release has {API_VERSION}"
    if name in known:
        return "PLG-04", "its name is taken by a plug-in that was found before"
    if not isinstance(plugin, VendorPlugin):
        return "PLG-04", f"is {type(plugin).__name__}, not a VendorPlugin"
    try:
        codec.from_json(VendorPlugin, codec.to_json(plugin))
    except SchemaViolation as error:
        return "PLG-04", str(error)
    if plugin.name != name or not plugin.device_types:
        return "PLG-04", f"calls itself {plugin.name!r} with the device types {plugin.device_types!r}"
    names = (plugin.probe, plugin.checks, plugin.adapter, plugin.capabilities, plugin.health)
    missing = [text for text in names if text is not None and not _resolvable(text)]
    return ("PLG-04", f"names {missing[0]!r}, which is not here") if missing else plugin


def _resolvable(text: str) -> bool:
    """Whether the module of `package.module:name` can be found; only the packages around it are imported."""
    module, _, name = text.partition(":")
    try:
        return bool(name) and find_spec(module) is not None
    except (ImportError, ValueError):
        return False
