"""What the bundled runtime can serve on this machine, asked before anything is measured, downloaded or loaded."""

import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_probe.api.looking import discover
from vllm_probe.api.planning import planned_device
from vllm_probe.core.errors import DeviceUnavailable, MissingExtra, UnsupportedModel, WeightsUnavailable
from vllm_probe.core.extras import WITHOUT_GPU, extra_command

if TYPE_CHECKING:
    from vllm_probe.core.config import RuntimeConfig
    from vllm_probe.core.device import Device
    from vllm_probe.core.model import ModelSpec
    from vllm_probe.core.system import Host
    from vllm_probe.runtime.executor.embedder import LoadFormat
    from vllm_probe.vendors.registry import PortableDeviceManager
    from vllm_probe.vendors.torchbase import TorchAdapter

ENGINE_PACKAGES = ("torch", "safetensors", "tokenizers")
"""Packages that the bundled engine imports, of the extra `runtime`."""

SERVER_PACKAGES = ("fastapi", "uvicorn", "prometheus_client")
"""Those that its server imports beside them."""


def require_servable(
    model: str, host: "Host", load_format: "LoadFormat", config: "RuntimeConfig | None" = None
) -> None:
    """Refuses what the bundled runtime could not serve: first what no download and no installation would mend.

    Raises:
        UnsupportedModel: it cannot run the model.
        DeviceNotFound: the device of `config` is not here.
        MissingExtra: a package is missing that it needs.
        WeightsUnavailable, HubUnreachable, HubRefused: the weights cannot be had.
    """
    from vllm_probe.models.resolve import resolve_model
    from vllm_probe.negotiate.case import refusal_of

    spec = resolve_model(model, host)
    if not spec.needs and (reason := refusal_of("bundled", spec)):
        verb, does = ("negotiate", "says how to start") if spec.quantization == "gguf" else ("serve", "starts")
        hint = f"`vllm-probe {verb} {shlex.quote(model)} --engine vllm` {does} vLLM with it"
        raise UnsupportedModel(f"{spec.name}: {reason}", hint=f"{hint}; or take an embedding model")
    if config:
        planned_device(config, discover(host))
    require_packages(*ENGINE_PACKAGES)
    if load_format != "dummy" and not spec.needs:
        require_weights(model, spec, host)
    if spec.weights_path is None or spec.needs:
        resolve_model(model, host, for_serving=load_format != "dummy")


def require_weights(model: str, spec: "ModelSpec", host: "Host") -> None:
    """Raises WeightsUnavailable where the weights of `model` are not here and no repository is known to have them."""
    from vllm_probe.models.resolve import downloadable

    if spec.weights_path is None and spec.repository is None and Path(model).is_dir():
        fetch = f"`hf download REPOSITORY --local-dir {shlex.quote(model)}`"
        hint = f"put the safetensors files of the model there, such as with {fetch}, or take --load-format dummy"
        raise WeightsUnavailable(f"the folder {model} has a config.json and no weights", hint=hint)
    if spec.weights_path is None:
        downloadable(spec, host)


def require_packages(*names: str) -> None:
    """Raises MissingExtra where one of these packages of the extra `runtime` is not installed; none is imported."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        said = "the Python packages {} are" if missing[1:] else "the Python package {} is"
        message = f"{said.format(' and '.join(map(repr, missing)))} not installed"
        hint = f"`{extra_command('runtime')}` brings what serve needs"
        raise MissingExtra(message, hint=hint + (WITHOUT_GPU if "torch" in missing else ""))


def require_bundled(config: "RuntimeConfig") -> None:
    """Raises UnsupportedModel for a config of another engine."""
    if config.engine != "bundled":
        command = f"vllm-probe negotiate {shlex.quote(config.model)} --engine bundled"
        raise UnsupportedModel(
            f"the config is for {config.engine} {config.engine_version}, and this is the bundled runtime",
            hint=f"`vllm-probe serve` starts {config.engine} with it; `{command}` plans for this one",
        )


def serving_adapter(config: "RuntimeConfig", host: "Host") -> "TorchAdapter":
    """The adapter of the device that `config` is for, not opened.

    Raises:
        DeviceNotFound, DeviceUnavailable: there is none, or it computes without torch, which the bundled runtime needs.
    """
    manager = discover(host)
    return on_torch(planned_device(config, manager), manager)


def on_torch(device: "Device", manager: "PortableDeviceManager") -> "TorchAdapter":
    """The adapter of `device`, where the bundled runtime can serve from it.

    Raises:
        DeviceUnavailable: it computes without torch, or the device cannot be used.
        MissingExtra, PluginRefused: it cannot be imported.
    """
    from vllm_probe.vendors.torchbase import TorchAdapter

    adapter = manager.adapter_for(device)
    if not isinstance(adapter, TorchAdapter):
        raise DeviceUnavailable(
            f"the adapter of {device.id} computes without torch: it can be benched and checked, not served from",
            hint="take another --device, such as cpu",
        )
    return adapter
