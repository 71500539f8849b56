"""What a start-up log of vLLM says of memory, version and options: releases from 0.6 on, any rank, any failure.

The sentences are those of vllm/worker/worker.py, vllm/v1/worker/gpu_worker.py, vllm/v1/core/kv_cache_utils.py and
vllm/config of releases 0.6 to 0.33.
"""

import re
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from vllm_probe.core.values import JsonValue

Outcome: TypeAlias = Literal["boots", "kv_too_small", "oom", "busy", "unknown"]

MAX_LOG_BYTES = 4 << 20
_MAX_LINES = 50_000
_MAX_LINE = 20_000
_GAP = r"[ \t]{1,40}"
_GIB = r"(\d{1,6}(?:\.\d{1,12})?) ?Gi?B"
_LEFT = r"(-?\d{1,6}(?:\.\d{1,12})?) ?Gi?B"  # what is left for a cache may be less than nothing
_COUNT = r"(\d[\d,]{0,20})"
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")

_FIGURES: tuple[tuple[str, str], ...] = (
    ("weights_gib", rf"(?:[Ll]oading model weights took|[Mm]odel loading took|model weights take){_GAP}{_GIB}"),
    ("weights_gib", rf"(?:weights memory:|Actual usage is) {_GIB}"),
    ("activation_gib", rf"PyTorch activation peak memory(?: takes|{_GAP}) ?{_GIB}"),
    ("activation_gib", rf"(?:torch peak memory increase:|for weight,) {_GIB}(?: for peak activation)?"),
    ("peak_gib", rf"peak_torch_memory={_GIB}"),
    ("non_torch_gib", rf"total_gpu_memory=.{{0,200}}non_torch_memory={_GIB}"),
    ("non_torch_gib", rf"non_torch_memory(?: takes|{_GAP}) ?{_GIB}"),
    ("non_torch_gib", rf"(?:non-torch forward increase memory:|for peak activation,) {_GIB}"),
    ("graph_gib", rf"Graph capturing finished in \d{{1,6}} secs?, took {_GIB}"),
    ("graph_gib", rf"CUDA graph pool memory: {_GIB} \(actual\)"),
    ("graph_gib", rf"and {_GIB} for CUDAGraph memory"),
    ("graph_estimate_gib", rf"(?:Estimated CUDA graph memory:|\(actual\),) {_GIB}"),
    ("kv_gib", rf"Available KV cache memory: {_LEFT}"),
    ("kv_gib", rf"(?:reserved for KV Cache is|available_kv_cache_memory{_GAP}) ?{_LEFT}"),
    ("kv_gib", rf"available KV cache memory \({_LEFT}\)"),
    ("kv_gib", rf"kv_cache_size={_LEFT}"),
    ("kv_needed_gib", rf"\({_GIB} KV cache is needed"),
    ("total_gib", rf"total_gpu_memory(?: \(|{_GAP}){_GIB}"),
    ("total_gib", rf"Free memory on device(?: cuda:\d{{1,3}})? \(\d{{1,6}}(?:\.\d{{1,6}})?/{_GIB}\)"),
    ("total_gib", rf"total_(?:gpu_)?memory={_GIB}"),
    ("total_gib", rf"has a total capac?i?ty of {_GIB}"),
    ("tokens", rf"GPU KV cache size: {_COUNT} tokens"),
    ("tokens", rf"number of tokens that can be stored in KV cache \({_COUNT}\)"),
    ("blocks", rf"# (?:GPU|CUDA|cuda|rocm) blocks: {_COUNT}"),
    ("blocks", rf"num_gpu_blocks(?: is)?:? {_COUNT}"),
    ("estimated_max_model_len", rf"estimated maximum model length is {_COUNT}"),
    ("concurrency", r"Maximum concurrency for [\d,]{1,20} tokens per request: (\d{1,9}(?:\.\d{1,6})?)x"),
)
_SMALLEST = ("kv_gib", "tokens", "blocks", "total_gib", "concurrency")
_FAILURES: tuple[tuple[Outcome, str], ...] = (
    ("busy", r"on startup is less than desired GPU memory utilization"),
    ("kv_too_small", r"max seq len \(\d{1,12}\),? \(?[\d.]{1,20} ?GiB KV cache is needed"),
    ("kv_too_small", r"max seq len \(\d{1,12}\) is larger than the maximum number of tokens that can be stored"),
    ("kv_too_small", r"GiB KV cache is needed, which is larger than the available"),
    ("oom", r"No available memory for the cache blocks"),
    ("oom", r"OutOfMemoryError|CUDA out of memory|HIP out of memory|out of memory occurred when warming up sampler"),
)
_OPTIONS: tuple[tuple[str, str], ...] = (
    ("max_model_len", r"max_(?:seq|model)_len['\"]?[=:] ?(\d{1,9})\b"),
    ("max_model_len", r"Using max model len (\d{1,9})\b"),
    ("max_model_len", r"max seq len \((\d{1,9})\)"),
    ("max_model_len", rf"Maximum concurrency for {_COUNT} tokens per request"),
    ("tensor_parallel_size", r"tensor_parallel_size['\"]?[=:] ?(\d{1,5})\b"),
    ("pipeline_parallel_size", r"pipeline_parallel_size['\"]?[=:] ?(\d{1,5})\b"),
    ("gpu_memory_utilization", r"gpu_memory_utilization['\"]?[=:] ?([01](?:\.\d{1,6})?)\b"),
    ("gpu_memory_utilization", rf"gpu_memory_utilization{_GAP}([01](?:\.\d{{1,6}})?)\b"),
    ("gpu_memory_utilization", r"gpu_memory_utilization \(([01](?:\.\d{1,6})?)\)"),
    ("gpu_memory_utilization", r"[Dd]esired GPU memory utilization (?:is )?\(([01](?:\.\d{1,6})?),"),
    ("max_num_seqs", r"max_num_seqs(?:['\"]?[=:]| to) ?(\d{1,7})\b"),
    ("max_num_batched_tokens", r"max_num_batched_tokens(?:['\"]?[=:]| to) ?(\d{1,9})\b"),
    ("enforce_eager", r"enforce_eager['\"]?[=:] ?(True|False)\b"),
    ("kv_cache_dtype", r"kv_cache_dtype['\"]?[=:] ?['\"]?(fp8(?:_e4m3|_e5m2)?|bfloat16|float16)\b"),
    ("dtype", r"\bdtype['\"]?[=:] ?['\"]?(?:torch\.)?(bfloat16|float16|float32)\b"),
)
_VERSION = re.compile(r"(?:API server version:? |LLM engine \(|[█▀▄] {1,9}version )v?(\d{1,4}\.\d{1,4}[\w.+]{0,40})")
_MODEL = re.compile(r"\bmodel['\"]?[=:] ?['\"]([^'\"]{1,300})['\"]")
_LISTED = re.compile(r"non-default args: |\bargs: Namespace\(")
_PLATFORMS = (
    re.compile(r"(?:Automatically detected platform|Platform plugin) (\w{1,40})"),
    re.compile(r"\b(device_config=\w{1,20})"),
    re.compile(r"\b(CUDA|HIP) out of memory"),
)
_START = re.compile(r"API server version|[█▀▄] {1,9}version \d")
_WORTH = re.compile(r"Gi?B|tokens|blocks|memory|utilization|version|engine|model|max_|_size|dtype|eager")


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of the log and the line that it stands in, counted from 1."""

    value: float
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartLog:
    """What the last start in a log said.

    Attributes:
        version: vLLM's version.
        platform: vLLM's platform, as a key of `platforms` in the laws, from whichever line tells it.
        model: model as it was named.
        outcome: whether it came up, and if not what it lacked.
        figures: numbers by name: `weights_gib peak_gib activation_gib non_torch_gib graph_gib graph_estimate_gib kv_gib
            kv_needed_gib total_gib tokens blocks concurrency estimated_max_model_len`; of several ranks the smallest
            cache and the largest part. Where only the peak with the weights is logged, their difference is the
            activation.
        options: options of the start by vLLM's name, as far as they are stated.
        lists_options: whether it lists what was asked for, so that an option that it does not name had its default.
    """

    version: str | None = None
    platform: str | None = None
    model: str | None = None
    outcome: Outcome = "unknown"
    figures: dict[str, Figure] = field(default_factory=dict)
    options: dict[str, JsonValue] = field(default_factory=dict)
    lists_options: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing that a prediction could be compared with, as the last words of a failure alone."""
        return self.version is None and self.figures.keys() <= {"total_gib", "kv_needed_gib"}


def parse_log(text: str) -> StartLog:
    """The last start in `text`, of which the first 50,000 lines and 20,000 characters of a line count."""
    lines = [_COLOUR.sub("", line[:_MAX_LINE]) for line in text.splitlines()[:_MAX_LINES]]
    begin = max((index for index, line in enumerate(lines) if _START.search(line)), default=0)
    figures, options, versions, models = dict[str, Figure](), dict[str, JsonValue](), list[str](), list[str]()
    failure: Outcome | None = None
    for number, line in enumerate(lines[begin:], begin + 1):
        if not _WORTH.search(line):
            continue
        _read_figures(line, number, figures)
        _read_options(line, options)
        versions += _VERSION.findall(line)
        models += _MODEL.findall(line)[:1]
        failure = failure or next((outcome for outcome, pattern in _FAILED if pattern.search(line)), None)
    if "peak_gib" in figures and "weights_gib" in figures:
        peak, weights = figures["peak_gib"], figures["weights_gib"]
        figures.setdefault("activation_gib", Figure(peak.value - weights.value, peak.line))
    sized = figures.keys() & {"tokens", "blocks", "kv_gib"}
    return StartLog(
        version=versions[-1] if versions else None,
        platform=_platform(lines),
        model=models[0] if models else None,
        outcome=failure or ("boots" if sized else "unknown"),
        figures=figures,
        options=options,
        lists_options=any(map(_LISTED.search, lines[begin:])),
    )


def _platform(lines: list[str]) -> str | None:
    """The platform that vLLM itself named, else what its options or its failure tell; it is named before a start."""
    for pattern in _PLATFORMS:
        if found := next(filter(None, map(pattern.search, lines)), None):
            return found[1].lower()
    return None


def _read_figures(line: str, number: int, figures: dict[str, Figure]) -> None:
    for name, pattern in _PATTERNS:
        if found := pattern.search(line):
            value = float(found[1].replace(",", ""))
            known = figures.get(name)
            if known is None or (value < known.value if name in _SMALLEST else value > known.value):
                figures[name] = Figure(value, number)


def _read_options(line: str, options: dict[str, JsonValue]) -> None:
    for name, pattern in _STATED:
        found = pattern.search(line)
        if found and name not in options:
            word = found[1].replace(",", "")
            known: dict[str, JsonValue] = {"True": True, "False": False}
            number = float(word) if "." in word else int(word) if word.isdigit() else word
            options[name] = known.get(word, number)


_PATTERNS = tuple((name, re.compile(pattern)) for name, pattern in _FIGURES)
_FAILED = tuple((outcome, re.compile(pattern)) for outcome, pattern in _FAILURES)
_STATED = tuple((name, re.compile(pattern)) for name, pattern in _OPTIONS)
