"""The options of `vllm serve` that carry a runtime config, as one version of vLLM knows them.

`options.json` has, by option, the first version that knows it (`since`), what carried it before (`was`), and what vLLM
takes where nothing is given (`default`: a value, or rows of which the first that applies counts; `input`: the input of
the decision that has it, and goes before rows); and its sources.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from vllm_probe.core.config import Decision, RuntimeConfig
from vllm_probe.core.errors import BadUsage
from vllm_probe.core.units import GIB
from vllm_probe.core.values import JsonValue

Version: TypeAlias = tuple[int, ...]
Row: TypeAlias = Mapping[str, Any]

_RUNNER = Decision(
    key="task",
    value="embed",
    rule="the model pools its token states",
    would_change="another model",
    passed_on="--runner pooling",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One option and why it has its value.

    Attributes:
        option: name without dashes, in the words of the version.
        value: true for an option that stands alone.
        default: what vLLM takes where nothing is given, null when that is not known.
        but: where that default does not hold.
        kept: whether it is what vLLM takes anyway.
        why: the rule that decided.
    """

    option: str
    value: str | int | float | bool
    default: str | int | float | bool | None
    but: str | None
    kept: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A runtime config as options of one version of vLLM, and what could not be passed on to it."""

    version: str
    options: tuple[Setting, ...]
    env: dict[str, str]
    notes: tuple[str, ...]

    def words(self) -> list[str]:
        """The options as arguments of a command line."""
        found = []
        for each in self.options:
            found += [f"--{each.option}"] if each.value is True else [f"--{each.option}", str(each.value)]
        return found


@cache
def table() -> Row:
    """`options.json`."""
    loaded: Row = json.loads(Path(__file__).with_name("options.json").read_bytes())
    return loaded


def version_of(text: str) -> Version:
    """Three numbers of a version; what is left out is 0.

    Raises:
        BadUsage: it is no version number.
    """
    match = re.match(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?!\d)", text)
    if match is None:
        raise BadUsage(f"not an engine version: {text!r}", hint="negotiate with a release such as 0.33.0")
    return tuple(int(number or 0) for number in match.groups())


def settings_of(config: RuntimeConfig, version: str | None = None) -> Settings:
    """The options that carry `config` to vLLM of `version`, the config's own by default, in the order of its fields.

    Raises:
        BadUsage: no version number.
    """
    version = version or config.engine_version
    number, first, last = version_of(version), *map(version_of, table()["read"])
    notes = []
    if number < first:
        notes.append(f"options were read from vLLM {table()['read'][0]} on: those of {version} are assumed alike")
    elif number[:2] > last[:2]:
        notes.append(f"options were read up to vLLM {table()['read'][1]}: those of {version} are assumed alike")
    carried = [("runner", "pooling", _RUNNER)] if config.task == "embed" else []
    carried += [each for decision in config.decisions for each in _carried(decision, config, number)]
    found = []
    for name, value, decision in carried:
        setting = _setting(name, value, decision, number, config)
        if setting:
            found.append(setting)
        else:
            known = name in table()["options"]
            notes.append(f"vLLM {version} has no --{name}" if known else f"--{name} is not among the options passed on")
    return Settings(version=version, options=tuple(found), env=_environment(config, number), notes=tuple(notes))


def row_of(rows: list[Row], number: Version) -> Row | None:
    """The first row of a table that holds for a version."""
    return next((row for row in rows if version_of(row.get("since", "0.0")) <= number), None)


def _carried(decision: Decision, config: RuntimeConfig, number: Version) -> Iterator[tuple[str, Any, Decision]]:
    """The option that carries `decision`, and its value unless `passed_on` holds that too."""
    option, *rest = decision.passed_on.split(" ")
    if not option.startswith("--"):
        return
    name, value = option.removeprefix("--"), _plain(decision.value)
    if decision.key == "compile":
        if config.compile.enabled:
            return
        value = True
    elif decision.key == "pooling" and config.pooling and not rest:
        word = row_of(table()["pooler_normalizes"], number) or {}
        pooler = {"pooling_type": str(config.pooling["type"]).upper(), word["value"]: config.pooling["normalize"]}
        value = json.dumps(pooler)
    elif decision.key == "kv_cache_dtype" and decision.value == config.dtype and "engine_format" not in decision.inputs:
        value = "auto"
    elif rest:
        value = rest[0]
    yield name, value, decision


def _setting(name: str, value: Any, decision: Decision, number: Version, config: RuntimeConfig) -> Setting | None:
    """The option in the words of a version, null where that has none."""
    row = table()["options"].get(name)
    if row is None:
        return None
    option = name
    if number < version_of(row.get("since", "0.0")):
        if "was" not in row:
            return None
        option = row["was"]["option"]
        value = row["was"].get("values", {}).get(value, value)
    default, but = _default(row["default"], number, config)
    own = decision.inputs.get(row.get("input", ""))
    if isinstance(row["default"], list) and isinstance(own, int):
        default = own
    kept = value in (default, own) or "is_default" in row
    return Setting(option=option, value=value, default=default, but=but, kept=kept, why=decision.rule)


def _default(default: Any, number: Version, config: RuntimeConfig) -> tuple[Any, str | None]:
    """What vLLM takes where nothing is given, null where that hangs on an unknown memory, and its exception."""
    if not isinstance(default, list):
        return default, None
    total = config.budget.device_total_bytes
    for row in default:
        if config.device_type not in row.get("device_types", (config.device_type,)):
            continue
        if number < version_of(row.get("since", "0.0")):
            continue
        if "least_gib" in row and total is None:
            return None, None
        if total is None or total >= row.get("least_gib", 0) * GIB:
            ranks = config.tensor_parallel_size * config.pipeline_parallel_size if "per" in row else 1
            return row["value"] * ranks, row.get("but")
    return None, None


def _environment(config: RuntimeConfig, number: Version) -> dict[str, str]:
    """Without a binding vLLM takes the number of threads from OpenMP; older ones size a CPU's cache by a variable.

    https://docs.vllm.ai/en/stable/getting_started/installation/cpu
    """
    if not config.threads:
        return {}
    found = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(config.threads)}
    if config.kv_cache_memory_bytes and number < version_of(table()["cpu_reads_kv_bytes"]):
        found["VLLM_CPU_KVCACHE_SPACE"] = str(-(-config.kv_cache_memory_bytes // GIB))
    return found


def _plain(value: JsonValue) -> str | int | float | bool:
    return value if isinstance(value, str | int | float | bool) else json.dumps(value)
