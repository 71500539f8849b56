"""What to do with a negotiated config: why it is refused, or how it is served."""

import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_probe.api.commands import negotiating
from vllm_probe.api.looking import discover, is_replay, judged_devices
from vllm_probe.api.planning import obtaining, planned_device, planned_words
from vllm_probe.api.servable import ENGINE_PACKAGES, SERVER_PACKAGES, on_torch, require_packages, require_weights
from vllm_probe.core.errors import DoesNotFit, Unavailable

if TYPE_CHECKING:
    from vllm_probe.core.config import RuntimeConfig
    from vllm_probe.core.model import ModelSpec
    from vllm_probe.core.system import Host

_OWN = "vllm-probe"


def refusal(config: "RuntimeConfig", again: Callable[[str], str] | None = None) -> DoesNotFit | None:
    """The error for a config that cannot boot; null when it may.

    It names what the engine lacks here, the limit that was exceeded, or the bytes needed; the hint is what to do, with
    the whole commands that `again` makes of changes, else those that ask again what `config` answers.
    """
    from vllm_probe.negotiate.explain import shortage, unsupported, way_out

    budget, again = config.budget, again or partial(negotiating, config)
    if budget.verdict in ("boots", "unknown"):
        return None
    if reason := unsupported(config):
        return DoesNotFit(f"{config.model} cannot run on this device: {reason}", hint=way_out(config, again))
    if budget.verdict == "invalid":
        return DoesNotFit(f"no device serves this: {config.warnings[0]}", hint=way_out(config, again))
    return DoesNotFit(shortage(config), hint=way_out(config, again))


def blocker(config: "RuntimeConfig", host: "Host") -> str | None:
    """Why no installation makes the bundled runtime serve `config`, as its warnings say it; null when one may."""
    from vllm_probe.models.resolve import resolve_model
    from vllm_probe.negotiate.case import refusal_of

    return refusal_of("bundled", resolve_model(config.model, host)) if config.engine == "bundled" else None


def next_step(config: "RuntimeConfig", path: Path, host: "Host", again: Callable[..., str]) -> str:
    """What to do with a config saved at `path`: the command that serves it, or why none here does and what would.

    `again` makes the command that negotiates with a change.
    """
    command = "vllm-probe serve" + ("" if path == Path("runtime.json") else f" {shlex.quote(str(path))}")
    if config.engine == "vllm":
        return _vllm_step(config, command, host, again)
    if blocker(config, host):
        return "the bundled runtime cannot serve it, as the first line says"
    from vllm_probe.models.resolve import resolve_model

    spec = resolve_model(config.model, host)
    if reason := _not_servable(config, spec, host):
        return f"this machine cannot serve it: {reason}"
    return f"next: {command}" + ("" if spec.weights_path else f"  (it first downloads {spec.repository} from the hub)")


def _vllm_step(config: "RuntimeConfig", serve: str, host: "Host", again: Callable[..., str]) -> str:
    from vllm_probe.export.vllm import missing_of, own_format, vllm_command

    if missing := missing_of(config):
        return f"next:\n{vllm_command(config)}\n{missing}"
    if not config.requires:
        return f"next, {_where(config, host)}: {serve}, or\n{vllm_command(config)}"
    quantized = vllm_command(config, "CHECKPOINT")
    if own := own_format(config):
        where = f"{quantized}\nwhere CHECKPOINT is {config.requires[0]}: {obtaining(config)}"
        as_it_is = f"{vllm_command(own)}\nthat takes {config.model} as it is; the config saved is for\n{where}"
        return f"next, {_where(config, host)}: {serve}, or\n{as_it_is}"
    first = f"it is for {config.requires[0]}, which has to be obtained first: {obtaining(config)}"
    then = "next, with its repository or folder as CHECKPOINT, which serve and export need:"
    command = again("--model CHECKPOINT", without=("--quantization",))
    return f"{first}\n{then}\n{command}\nor, with vLLM alone:\n{quantized}"


def _where(config: "RuntimeConfig", host: "Host") -> str:
    """Where `serve` starts vLLM with `config`."""
    try:
        if not is_replay(host):
            planned_device(config, discover(host))
    except Unavailable:
        return f"where {planned_words(config)} and vLLM are"
    return "where vLLM is installed"


def _not_servable(config: "RuntimeConfig", spec: "ModelSpec", host: "Host") -> str | None:
    """Why the bundled runtime cannot serve `config` on this machine, with what to do; null when it can."""
    if is_replay(host):
        return "it is for the recorded one"
    manager = discover(host)
    here = {device.id: device for device in judged_devices(manager)}
    if config.device not in here:
        found = ", ".join(here) or "none"
        return f"{config.device or config.device_type} is not among its devices ({found}); serve it where that is"
    if here[config.device].adapter is None:
        return f"the bundled runtime has no adapter for {config.device}; take --engine vllm, or --device cpu"
    try:
        require_packages(*ENGINE_PACKAGES, *SERVER_PACKAGES)
        # our own adapters are torch's, which takes seconds to import
        if manager.distributions.get(here[config.device].vendor, _OWN) != _OWN:
            on_torch(here[config.device], manager)
        require_weights(config.model, spec, host)
    except Unavailable as error:
        return f"{error}; {error.hint}"
    return None
