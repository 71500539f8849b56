"""What the support tables say of an engine on one device: kernels, number formats, and whether it runs there at all."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from vllm_probe.core.releases import at_version, is_before, version_number
from vllm_probe.core.values import ENGINE_DTYPES
from vllm_probe.negotiate.case import Case, architecture_reason
from vllm_probe.negotiate.laws import Row, by_device, table
from vllm_probe.vendors.engines import arch_word, floor_of, floors, is_older, is_under, last_release

WORDS = {dtype: word for word, dtype in ENGINE_DTYPES.items()}
"""Runtime word of a number format to capability word."""

DTYPES = ("bfloat16", "float16", "float32")
"""Number formats of activations, in the order in which they are tried."""


def support(case: Case, kind: str) -> Row:
    """The rows of `kind` for the engine on this device type."""
    return by_device(table("support")[case.request.engine][kind], case.device_type)


def dtype_rule(case: Case, dtype: str) -> Row:
    """The row of a number format."""
    word = WORDS[dtype]
    found: Row = support(case, "dtypes").get(word, {"no": f"{case.request.engine} has no {word} kernels here"})
    return found


def arch_of(case: Case) -> str | None:
    """The architecture in the words of the tables; null where it is unknown or none of the vendor's form."""
    return arch_word(case.capability.device.arch, _floors(case).get("form", ".+"))


def unnamed(case: Case) -> str:
    """Why the architecture is not known."""
    word = case.capability.device.arch
    return f"the descriptor's arch {word!r} is none of {case.device_type}" if word else "the descriptor names no arch"


def kernel_reason(case: Case, row: Row) -> str | None:
    """Why the engine certainly has no kernel here, or null; where the architecture is not known nothing is certain."""
    arch, word = case.capability.device.arch, arch_of(case)
    if row.get("no"):
        return str(row["no"])
    if "since" in row and is_before(case.engine_version, row["since"]):
        return f"its kernels came with {row['since']}, this is {case.engine_version}"
    if is_below(case, row.get("min_arch")):
        return f"its kernels need {shown(row['min_arch'])}, this is {arch}"
    if "max_arch" in row and is_below(case, (row["max_arch"][0], row["max_arch"][1] + 1)) is False:
        return f"its kernels end with {shown(row['max_arch'])}, this is {arch}: {row['note']}"
    if word and "archs" in row and not word.startswith(tuple(row["archs"])):
        return f"its kernels are for {', '.join(row['archs'])}, this is {arch}: {row['note']}"
    return None


def is_below(case: Case, least: Sequence[Any] | None) -> bool | None:
    """Whether the architecture is older than `least`; null where it is unknown or of another family."""
    return is_older(arch_of(case), least)


def shown(arch: Sequence[Any]) -> str:
    """An architecture of the tables as descriptors write it."""
    return "".join(map(str, arch))


def doubt(case: Case, row: Row) -> str | None:
    """What a table is not sure of on this architecture, or null."""
    arch, sure = arch_of(case), tuple(row.get("sure_arch", ()))
    if version_number(row.get("doubt_since", "0")) > version_number(case.engine_version):
        return None
    if "doubt" not in row or (arch and sure and arch.startswith(sure)):
        return None
    seen = f"; {f'this is {arch}' if arch else unnamed(case)}" if sure else ""
    return f"{row['doubt']}{seen}"


def device_reason(case: Case) -> str | None:
    """Why the engine certainly does not run on this device whatever the model, and what does; or null."""
    rules = _floors(case)
    if not rules or not is_under(arch_of(case), rule := at_version(rules["rows"], case.engine_version)):
        return None
    runs = (
        f"{case.request.engine} {case.engine_version} runs on {floor_of(rule)}, this is {case.capability.device.arch}"
    )
    older = release_for(case)
    if older is None:
        return f"{runs}: {rules['instead']}"
    lacks = f", and it has no {case.spec.architecture}: none runs {case.spec.name} here"
    lacking = architecture_reason(case.engine, case.spec, older)
    return f"{runs}: {older} is the last release that does{lacks if lacking else ''}"


def device_doubt(case: Case) -> str | None:
    """The devices that the engine runs on, where the descriptor does not say which this is; or null."""
    rules = _floors(case)
    if not rules or arch_of(case):
        return None
    rule = at_version(rules["rows"], case.engine_version)
    return f"{case.request.engine} {case.engine_version} runs on {floor_of(rule)}; {unnamed(case)}"


def release_for(case: Case) -> str | None:
    """The last release before the one asked for that runs on this device, null without."""
    return last_release(_floors(case), arch_of(case), case.engine_version)


def _floors(case: Case) -> Row:
    return floors(case.request.engine, case.device_type)


def format_reason(case: Case, dtype: str, methods: Iterable[str]) -> str | None:
    """Why the engine certainly refuses a number format here, for this model or one of `methods`; or null."""
    tables, kind = table("support")[case.request.engine], case.spec.model_type
    if reason := kernel_reason(case, dtype_rule(case, dtype)):
        return reason
    row = tables["no_float16"]
    if dtype == "float16" and kind in row["models"]:
        return f"{kind}: {row['because']}"
    for method in methods:
        row = support(case, "methods").get(method, {})
        taken = row.get("activations", tables["activations"].get(method, DTYPES))
        if dtype not in taken:
            return f"{case.request.engine} computes {method} in {' or '.join(taken)} only"
    return None


def own_methods(case: Case) -> tuple[str, ...]:
    """How the checkpoint is quantized: its method, and those of parts that differ."""
    return tuple(dict.fromkeys([case.spec.quantization, *case.spec.quantized_parts.values()]))


def own_reason(case: Case) -> str | None:
    """Why the engine certainly lacks kernels for the checkpoint as it is, or null."""
    name, unread = case.spec.quantization, table("support")[case.request.engine].get("unreadable", {})
    reason = kernel_reason(case, support(case, "methods").get(name, {}))
    is_known = not unread or name in table("methods") or name in unread["but"]
    if not is_known and not is_before(case.engine_version, unread["since"]):
        reason = unread["because"]
    elif unlisted := next(_unlisted(case), None):
        name, reason = (
            unlisted,
            f"the engine takes no methods there but {', '.join(support(case, 'methods'))}",
        )
    return reason and f"{name} with {case.request.engine} on {case.device_type}: {reason}"


def _unlisted(case: Case) -> Iterator[str]:
    """Methods of the checkpoint that are not on the list of a device type which takes no others."""
    rule, rows = support(case, "closed"), support(case, "methods")
    if rule and not is_before(case.engine_version, rule["since"]):
        yield from (name for name in own_methods(case) if name not in ("none", *rows, *rule["but"]))


def own_doubt(case: Case) -> str | None:
    """Why the engine may lack kernels for the checkpoint as it is, though it is not certain; or null."""
    name, rows = case.spec.quantization, support(case, "methods")
    if name == "none" or name in rows or own_reason(case):
        return None
    unknown = f"no kernels are known, the engine may refuse it; known there are {', '.join(rows) or 'none'}"
    return f"{name} with {case.request.engine} on {case.device_type}: {unknown}"


def cache_reason(case: Case) -> str | None:
    """Why the engine may not read an 8-bit KV cache on this architecture, or null."""
    unknown = None if case.device["has_fp8_kv"] else f"no 8-bit cache is known on {case.capability.device_type}"
    return kernel_reason(case, support(case, "fp8_cache")) or unknown
