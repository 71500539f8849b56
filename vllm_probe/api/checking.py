"""Start-up logs: reading them, comparing them with a prediction, and keeping what they showed."""

import logging
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_probe.core.errors import BadUsage, InputError, LogDiffers, UnreadableFile, UnwritableOutput

if TYPE_CHECKING:
    from vllm_probe.core.capability import Capability
    from vllm_probe.core.config import RuntimeConfig
    from vllm_probe.core.model import ModelSpec
    from vllm_probe.core.system import Host
    from vllm_probe.negotiate.residual import Residual
    from vllm_probe.negotiate.startlog import StartLog

_log = logging.getLogger(__name__)
_SAY_MORE = "say with options what the log leaves open, such as --max-model-len and --gpu-memory-utilization"


def read_log(path: Path) -> "StartLog":
    """The last start in the first megabytes of the log at `path`.

    Raises:
        UnreadableFile: it cannot be read.
        BadUsage: nothing in it is of vLLM's start-up.
    """
    from vllm_probe.core.files import is_stream
    from vllm_probe.negotiate.startlog import MAX_LOG_BYTES, parse_log

    try:
        if is_stream(path):
            raise UnreadableFile(f"{path} is a pipe or device", hint="name a regular file")
        with path.open("rb") as file:
            found = parse_log(file.read(MAX_LOG_BYTES).decode(errors="replace"))
    except OSError as error:
        raise UnreadableFile(
            f"cannot read {path}: {error.strerror}", hint="check the path and its permissions"
        ) from error
    if found.is_empty:
        message = f"{path} holds nothing of a start-up of vLLM that could be compared"
        hint = "give all that `vllm serve` printed, from its first line on"
        if found.outcome != "unknown":
            message = f"{path} holds how a start of vLLM failed, and no figure of what came before"
            hint = f"{hint}; `vllm-probe doctor --log {shlex.quote(str(path))}` explains the failure"
        raise BadUsage(message, hint=hint)
    return found


def checked(config: "RuntimeConfig", spec: "ModelSpec", log: "StartLog", path: Path, **kept: Any) -> "RuntimeConfig":
    """`config` with the comparison; its residual is stored where there is one.

    Args:
        config: prediction for what the log states.
        spec: model that was asked about.
        log: the log.
        path: where it is from.
        kept: `host`, `document` and `notes`: who keeps the residual, of which device, and what was assumed.
    """
    from vllm_probe.core.files import make_folder, write_private
    from vllm_probe.negotiate.check import compare
    from vllm_probe.negotiate.residual import Residual

    found = compare(config, spec, log, path.name, kept["notes"], kept["document"].memory.total_bytes)
    target = _place(kept["host"], kept["document"], config.engine_version, config.tensor_parallel_size)
    if target and found.residual_bytes:
        from vllm_probe.core.codec import dumps

        residual = Residual(
            engine_version=config.engine_version,
            device=_device(kept["document"]),
            ranks=config.tensor_parallel_size,
            residual_bytes=found.residual_bytes,
            model=spec.name,
            created_at=config.created_at or "",
            log=path.name,
        )
        try:
            make_folder(target.parent)
            write_private(target, dumps(residual))
            found = replace(found, stored=str(target))
        except UnwritableOutput as error:
            _log.warning("the residual is not kept: %s", error)
    return replace(config, checks=(found,))


def stored_residual(host: "Host", document: "Capability", engine_version: str | None, ranks: int) -> "Residual | None":
    """What an earlier log showed of that version on so many such devices; a file that cannot be used is said."""
    from vllm_probe.core.codec import from_json
    from vllm_probe.core.files import read_json
    from vllm_probe.negotiate.laws import band
    from vllm_probe.negotiate.residual import Residual

    path = _place(host, document, band("vllm", engine_version)[0], ranks)
    if path is None or not path.is_file():
        return None
    try:
        return from_json(Residual, read_json(path))
    except InputError as error:
        _log.warning("%s is not used: %s", path, error)
        return None


def disagreement(config: "RuntimeConfig") -> LogDiffers | None:
    """The error for a log that is not as predicted; null when it is, or when none was compared."""
    for check in config.checks:
        if not check.agrees:
            off = [figure.quantity for figure in check.figures if not figure.is_within]
            what = f"{', '.join(off)} out of the band" if off else check.differences[-1]
            hint = "another option, another process on the device, or a law to correct" if off else _SAY_MORE
            return LogDiffers(f"{check.log} is not as predicted: {what}", hint=hint)
    return None


def _place(host: "Host", document: "Capability", engine_version: str, ranks: int) -> Path | None:
    """File of the residual of a version's minor release on so many devices like that of `document`."""
    from vllm_probe.core.releases import version_number
    from vllm_probe.negotiate.residual import residual_name
    from vllm_probe.vendors.descriptors import state_folder

    folder = state_folder(host, "residuals")
    major, minor = version_number(engine_version)
    return folder / residual_name(f"{major}.{minor}", _device(document), ranks) if folder else None


def _device(document: "Capability") -> str:
    return document.device.name or document.device.arch or document.device_type
