"""Configs and targets that the tests of this folder share."""

from typing import Any

import pytest

from tests.unit.negotiate.cases import ARC, ASCEND, CPU, GIB, H100, config
from vllm_probe.core.config import RuntimeConfig
from vllm_probe.core.model import ModelSpec
from vllm_probe.core.plugin import VendorPlugin
from vllm_probe.export.container import Container, Target, vllm_container
from vllm_probe.vendors import amd, ascend, cpu, intel, nvidia

PLUGINS: dict[str, VendorPlugin] = {
    plugin.name: plugin for plugin in (each.PLUGIN for each in (nvidia, amd, intel, ascend, cpu))
}
DOCUMENTS: dict[str, Any] = {
    "nvidia": H100,
    "amd": H100 | {"device_type": "amd", "device": {"vendor": "amd", "kind": "gpu", "arch": "gfx942"}},
    "intel": ARC | {"memory": {"bandwidth_gb_s": 512, "alignment_bytes": 64, "total_bytes": 16 * GIB}},
    "ascend": ASCEND | {"memory": {"bandwidth_gb_s": 2048, "alignment_bytes": 256, "total_bytes": 64 * GIB}},
    "cpu": CPU,
}
by_vendor = pytest.mark.parametrize("vendor", DOCUMENTS)


def made(vendor: str, spec: ModelSpec, **wanted: Any) -> RuntimeConfig:
    """The config of `spec` for vLLM on a device of `vendor`, in the checkpoint's own format."""
    pins = {"quantization": spec.quantization, **wanted.pop("pins", {})}
    threads = 2 if vendor == "cpu" else None
    return config(spec, DOCUMENTS[vendor], engine="vllm", pins=pins, threads=threads, **wanted)


def target(vendor: str, **facts: Any) -> Target:
    access = PLUGINS[vendor].container
    groups = {gate.replace("*", "128"): None for gate in access.groups_of}
    return Target(vendor=vendor, access=access, **{"groups": groups, **facts})


def container(vendor: str, spec: ModelSpec, **wanted: Any) -> Container:
    return vllm_container(made(vendor, spec, **wanted), target(vendor))
