"""The number format of the KV cache: what a release takes, and what it takes by itself."""

from dataclasses import dataclass, replace

from vllm_probe.core.capability import Capability
from vllm_probe.core.errors import BadUsage
from vllm_probe.core.model import ModelSpec
from vllm_probe.core.releases import at_version
from vllm_probe.negotiate.blocks import is_on
from vllm_probe.negotiate.laws import device_row, table
from vllm_probe.negotiate.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFormat:
    """What an engine keeps keys and values in by itself.

    Attributes:
        word: its word for the format, null for that of the activations.
        of_checkpoint: the checkpoint states it, so that another checkpoint of the model need not have it.
        rule: why.
        warning: that a format which the checkpoint states is not taken, and why; null where it is.
        takes: formats that may be asked for.
    """

    word: str | None = None
    of_checkpoint: bool = False
    rule: str = "as the activations"
    warning: str | None = None
    takes: tuple[str, ...] = ()

    def of(self, dtype: str, *, is_own: bool) -> str:
        """The format beside activations in `dtype`, of the checkpoint as it is or of another one."""
        return self.word if self.word and (is_own or not self.of_checkpoint) else dtype


def cache_format(spec: ModelSpec, capability: Capability, request: Request, version: str) -> CacheFormat:
    """The format that the engine of `request` takes for `spec` where none is asked for."""
    if request.engine != "vllm":
        return CacheFormat()
    name, device = device_row(capability.device_type)
    law, stated = table("caches"), spec.kv_cache_dtype
    own = CacheFormat(takes=tuple(at_version(law["takes"], version)))
    for row in law["architectures"]:
        word = at_version(row["format"], version)
        if word and spec.architecture in row["names"] and name in row["types"] and is_on(row, capability):
            return replace(own, word=word, rule=f"vLLM {version} keeps that of {spec.architecture} so: {row['source']}")
    if stated is None:
        return own
    if not device["has_fp8_kv"]:
        return replace(own, warning=_unread(spec, f"vllm has no 8-bit cache on {capability.device_type}"))
    if stated not in at_version(law["reads"], version):
        return replace(own, warning=_unread(spec, f"vLLM {version} does so only with --kv-cache-dtype {stated}"))
    return replace(own, word=stated, of_checkpoint=True, rule="as the checkpoint states, which has the scales for it")


def _unread(spec: ModelSpec, why: str) -> str:
    return f"{spec.name} states that its KV cache is kept in {spec.kv_cache_dtype}, and it is not: {why}"


def check_cache_format(request: Request, spec: ModelSpec, device_type: str, version: str) -> None:
    """Accepts a pinned format of the KV cache that the release of the engine takes with this checkpoint there.

    Raises:
        BadUsage: it takes only others.
    """
    pinned, law = request.pins.get("kv_cache_dtype"), table("caches")
    if pinned is None or request.engine != "vllm":
        return
    takes, methods = at_version(law["takes"], version), {spec.quantization, *spec.quantized_parts.values()}
    if pinned not in takes:
        message = f"--kv-cache-dtype {pinned}: vLLM {version} has no KV cache in {pinned}"
        raise BadUsage(message, hint=f"give one of {', '.join(takes)}, or auto, the format of the activations")
    name, device = device_row(device_type)
    if pinned.startswith("fp8") and name != "*" and not device["has_fp8_kv"]:
        message = f"--kv-cache-dtype {pinned}: vllm has no 8-bit cache on {device_type}"
        raise BadUsage(message, hint="leave it out, or give auto, the format of the activations")
    refuses = spec.kv_cache_dtype or methods.intersection(at_version(law["e5m2"]["refuses"], version))
    if pinned == "fp8_e5m2" and refuses and request.pins.get("quantization", spec.quantization) == spec.quantization:
        message = f"--kv-cache-dtype fp8_e5m2: {law['e5m2']['because']}, and {spec.name} is {spec.quantization}"
        raise BadUsage(message, hint="give fp8_e4m3, or auto")
