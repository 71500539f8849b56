"""Step 3, the record: every parameter of the runtime config with the rule that set it."""

import math
from typing import Any

from vllm_probe.core.config import OWN_FORMAT, Compile, Decision, Rejection
from vllm_probe.core.units import format_bytes
from vllm_probe.negotiate.budget import fills_memory, kept_words, layout_of, limit_bytes
from vllm_probe.negotiate.cached import alignment_option, block_size_rule, cache_format_rule
from vllm_probe.negotiate.candidates import Candidate
from vllm_probe.negotiate.capacity import least_capacity
from vllm_probe.negotiate.changes import would_change
from vllm_probe.negotiate.chunking import computes_whole, item_tokens
from vllm_probe.negotiate.compiling import choices_of, compile_of, undecided
from vllm_probe.negotiate.laws import table
from vllm_probe.negotiate.parallel import roles
from vllm_probe.negotiate.pooling import pooling_of
from vllm_probe.negotiate.request import ranks_of
from vllm_probe.negotiate.select import Selection
from vllm_probe.negotiate.sizing import Sized, alignment
from vllm_probe.negotiate.stages import stages_of
from vllm_probe.negotiate.support import WORDS

_NO_CAPACITY = "the capacity is unknown: give --device-memory"
_RAY = "--distributed-executor-backend ray"
_NO_KV = "a prompt is computed in one step: there is no KV cache"


class Record:
    """The decisions of one config, in the order of its fields, and the value of each parameter."""

    def __init__(self, selection: Selection) -> None:
        self._chosen = selection.chosen
        self._request = selection.chosen.case.request
        self.decisions: list[Decision] = []
        self.values: dict[str, Any] = {}
        _formats(self, selection)
        for part in (_context, _kv_cache, _batch, _memory, _ranks, _device, _model):
            part(self, selection.chosen)

    def set(
        self, key: str, value: Any, rule: str, *, rejected: tuple[Rejection, ...] = (), option: str = "", **inputs: Any
    ) -> None:
        """Enters a parameter; a pinned one says so, whatever the rule would have been."""
        row, pin = table("parameters")[key], {"compile": "enforce_eager"}.get(key, key)
        pinned = f"--{pin.replace('_', '-')}" if pin in self._request.pins else None
        carried = row["vllm"] if self._request.engine == "vllm" else "not passed on"
        if self._request.engine == "bundled" and row["bundled"]:
            carried = "read from runtime.json"
        self.values[key] = value
        self.decisions.append(
            Decision(
                key=key,
                value={"enabled": value.enabled, "mode": value.mode} if isinstance(value, Compile) else value,
                rule=f"pinned by {pinned}" if pinned else rule,
                pinned=pinned is not None,
                inputs=inputs,
                rejected=rejected,
                would_change=would_change(key, self._chosen, pinned),
                passed_on=option or ("not passed on" if value is None else carried),
            )
        )


def _formats(record: Record, selection: Selection) -> None:
    chosen, case = selection.chosen, selection.chosen.case
    candidate, word = chosen.candidate, WORDS[chosen.candidate.dtype]
    rate = case.rates.of(word)
    record.set(
        "dtype",
        candidate.dtype,
        "the fastest format here that loses no range" if rate else "the checkpoint's own format",
        rejected=selection.dtypes,
        rate=f"{word} {rate}, {case.request.capability_name}" if rate else case.rates.why_missing(word),
        checkpoint=f"{case.spec.dtype}, {case.spec.source}",
    )
    option = candidate.option if chosen is not selection.own else OWN_FORMAT
    record.set(
        "quantization",
        candidate.quantization,
        selection.rule,
        rejected=selection.methods,
        option=option if case.request.engine == "vllm" else "",
        checkpoint=f"{case.spec.quantization}, {case.spec.source}",
        parameters=case.need.num_parameters,
        active_parameters=case.need.active_parameters,
        weights_bytes=chosen.budget.weights_bytes,
        accuracy=_accuracy(candidate),
        **({"unsupported": candidate.unsupported} if candidate.unsupported else {}),
        candidates={each.candidate.quantization: _standing(each) for each in (selection.own, *selection.twins)},
    )
    if not case.keeps_kv:
        record.set("kv_cache_dtype", None, _NO_KV)
        return
    rule, rejected, inputs = cache_format_rule(chosen)
    record.set("kv_cache_dtype", chosen.shape.kv_dtype, rule, rejected=rejected, **inputs)


def _standing(sized: Sized) -> dict[str, Any]:
    """What one candidate was judged by: its speed and how that is known, its bytes, and what it costs in accuracy."""
    candidate, speed = sized.candidate, sized.tokens_per_s()
    known = f"derived from {candidate.compute}" if candidate.unmeasured else f"{candidate.compute} rate"
    return {
        "tokens_per_s": None if speed is None else float(f"{speed:.4g}"),
        "speed": known if speed else "no rate",
        "weights_bytes": sized.budget.weights_bytes,
        "requested_bytes": sized.budget.requested_bytes,
        "verdict": sized.budget.verdict,
        "accuracy": _accuracy(candidate),
    }


def _accuracy(candidate: Candidate) -> str:
    """What a method is known to cost in accuracy."""
    return str(table("methods").get(candidate.quantization, {}).get("accuracy", "as the checkpoint's"))


def _context(record: Record, chosen: Sized) -> None:
    case, length, limit = chosen.case, chosen.shape.max_model_len, chosen.case.spec.max_model_len
    rule = "the model's limit"
    if length < limit:
        rule = f"lowered from the model's limit of {limit} to the largest that boots"
    if not chosen.boots:
        rule = f"input and output of the workload: it does not boot, and the model's limit is {limit}"
    longest, tokens = chosen.budget.estimated_max_model_len, case.workload.length
    given = case.request.given("input_len", "output_len")
    sizes: dict[str, Any] = {"model_limit": limit, "longest_that_boots": longest, "workload_tokens": tokens}
    record.set("max_model_len", length, rule, **sizes, **given)


def _kv_cache(record: Record, chosen: Sized) -> None:
    case, budget = chosen.case, chosen.budget
    if not case.keeps_kv:
        for key in ("block_size", "num_kv_blocks", "kv_cache_memory_bytes"):
            record.set(key, None, _NO_KV)
        return
    rule, option, inputs = block_size_rule(chosen)
    record.set("block_size", chosen.shape.block_size, rule, option=option, **inputs)
    unknown = None if case.total_bytes else _NO_CAPACITY
    cache = layout_of(case, chosen.shape, stages_of(case.spec.num_layers, case.stages)[0])
    tokens = sorted({group.block_tokens for group in cache.groups})
    rule = "KV cache bytes over block bytes"
    if len(cache.groups) > 1:
        rule += f": {len(cache.groups)} groups of layers share them, {' or '.join(map(str, tokens))} tokens a block"
    sequence = cache.blocks(chosen.shape.max_model_len, chosen.shape.tokens)
    record.set(
        "num_kv_blocks",
        budget.num_kv_blocks,
        unknown or rule,
        block_bytes=cache.block_bytes,
        block_tokens=tokens,
        blocks_of_longest_sequence=sequence,
    )
    rule = "every sequence of the workload to its end, and one of max_model_len"
    if fills_memory(case):
        rule = "all that is left under gpu_memory_utilization"
    elif case.spec.task == "embed":
        rule = "one step of the pooling model, or its longest prompt, and 2 %"
    is_profiled = case.request.engine == "vllm" and fills_memory(case)
    record.set(
        "kv_cache_memory_bytes",
        budget.kv_cache_bytes,
        unknown or rule,
        option="not passed on: vLLM profiles what --gpu-memory-utilization leaves"
        if is_profiled and "kv_cache_memory_bytes" not in case.request.pins
        else "",
        tokens=budget.kv_cache_tokens,
    )


def _batch(record: Record, chosen: Sized) -> None:
    case, shape, work = chosen.case, chosen.shape, chosen.case.workload
    rule = f"the concurrency of {work.concurrency}"
    if shape.seqs > work.concurrency:
        rule = "as many short texts of 16 tokens as a step holds: pooling keeps nothing between steps"
    elif shape.seqs < work.concurrency:
        rule = f"the KV cache holds {shape.seqs} of {work.concurrency} sequences of {work.length} tokens"
        rule = rule if chosen.boots else "it boots with no more, nor with one"
    record.set("max_num_seqs", shape.seqs, rule, concurrency=work.concurrency, objective=case.request.objective)
    rule = "the prefill chunk"
    if shape.tokens > chosen.chunk.rows:
        whole = "the longest prompt, which is computed whole"
        rule = whole if computes_whole(case, shape.max_model_len) else "a token a step for every sequence"
        rule = "the longest image or video, which is computed whole" if shape.tokens == item_tokens(case) else rule
    record.set("max_num_batched_tokens", shape.tokens, rule, prefill_chunk_size=chosen.chunk.rows)
    width = chosen.candidate.weights.width
    gemms = [
        f"{gemm.name} {gemm.k}x{gemm.n} x{gemm.stored or gemm.active}, {gemm.intensity(shape.tokens, width):.0f} FLOP/B"
        for gemm in case.need.gemms
    ]
    record.set("prefill_chunk_size", chosen.chunk.rows, chosen.chunk.rule, gemms=gemms, **chosen.chunk.inputs)


def _memory(record: Record, chosen: Sized) -> None:
    """Share of the device memory that the engine is told to request."""
    case, requested = chosen.case, chosen.budget.requested_bytes
    share, rule = case.request.pins.get("gpu_memory_utilization"), _NO_CAPACITY
    limit = limit_bytes(case, chosen.budget.graph_bytes)
    needs: dict[str, Any] = {} if chosen.boots else {"boots_from_bytes": least_capacity(chosen)}
    if needs and share is not None:
        needs["boots_unpinned_from_bytes"] = least_capacity(chosen, without="gpu_memory_utilization")
    if case.total_bytes and requested is not None and share is None:
        outside = 0 if case.law["graphs_in_utilization"] else chosen.budget.graph_bytes
        rule = f"{format_bytes(requested)} of {format_bytes(case.total_bytes)}"
        exact = (requested - outside) / case.total_bytes
        share = math.ceil(exact * 10_000 - 0.01) / 10_000 if exact <= 1 else None
        if limit and requested > limit:
            rule += f", of which {format_bytes(limit)} are usable: more than there is"
    record.set(
        "gpu_memory_utilization",
        share,
        rule,
        capacity_bytes=case.total_bytes,
        **case.request.given("device_memory_bytes"),
        limit_bytes=limit,
        kept_free=kept_words(case, limit),
        **needs,
        law=f"fitted to {case.law['fitted']}; {case.law['source']}",
    )


def _ranks(record: Record, chosen: Sized) -> None:
    case, count = chosen.case, chosen.case.request.num_devices
    record.set(
        "tensor_parallel_size",
        case.ranks,
        case.division_rule,
        devices=count,
        heads=case.spec.num_heads,
        possible=list(ranks_of(case.spec)),
    )
    record.set("pipeline_parallel_size", case.stages, case.division_rule, devices=count, layers=case.spec.num_layers)
    total = case.ranks * case.stages
    backend = case.device["collective_backend"] if total > 1 else None
    rule, option = (
        f"the library of {case.capability.device_type} devices" if backend else "one rank connects to nobody",
        "",
    )
    if backend and count is None:
        rule += f"; where one host has fewer than {total} of them add {_RAY}, with Ray started on every host"
    elif backend and count is not None and total > count:
        option = _RAY
        rule += f"; {total} ranks are more than the {count} devices here, so Ray starts them: run `ray start --head` on"
        rule += " this host, `ray start --address=THIS_HOST:6379` on the others, then vLLM here"
        if case.ranks > count:
            rule += "; sums then cross the network: better a stage on each host, by --pipeline-parallel-size"
    record.set("collective_backend", backend, rule, option=option, devices=count)


def _device(record: Record, chosen: Sized) -> None:
    case, capability = chosen.case, chosen.case.capability
    widths, budget = capability.execution.group_width, case.request.threads
    if case.device["has_threads"]:
        swept, cores = widths.get("threads"), capability.device.num_units
        best = swept if isinstance(swept, int) else cores
        threads = min(filter(None, (best, budget)), default=None)
        rule = "one for each core that descriptor and process both have" if threads else "no core count is known"
        rule = "as many as were fastest in the sweep, and as this process has" if best is swept else rule
        record.set("threads", threads, rule, descriptor=best, process=budget)
    else:
        record.set("threads", None, "not a CPU")
    stated, needed = capability.memory.alignment_bytes, alignment(case)
    rule = "the descriptor's" if stated == needed else f"what {case.capability.device_type} devices need"
    source = "the descriptor" if stated == needed else case.device["alignment_source"]
    record.set("alignment_bytes", needed, rule, option=alignment_option(chosen), descriptor=stated, source=source)
    scope = capability.execution.memory_fence_scope
    rule = "the descriptor's" if scope else "the widest, since the descriptor states none"
    record.set("memory_fence_scope", scope or "system", rule)
    width = widths.get("optimal") or widths.get("native") or case.device["group_width"]
    rule = "the device's own: none was measured to be faster" if width else "no width is known of this device"
    rule = "the fastest that was measured" if widths.get("optimal") else rule
    known = {key: value for key, value in widths.items() if key != "sweep"}
    record.set("group_width", width if isinstance(width, int) else None, rule, descriptor=known)


def _model(record: Record, chosen: Sized) -> None:
    case, choices = chosen.case, choices_of(chosen)
    compiled = compile_of(chosen, choices)
    record.set("compile", compiled, compiled.reason)
    won = {name: choice["implementation"] for name, choice in choices.items()}
    if not compiled.enabled:
        backend = case.device["compile_backend"]
        won = {name: choices[name].get("second") if word == backend else word for name, word in won.items()}
    won = {name: word for name, word in won.items() if word}
    rule = "those that won in the descriptor's bench" if won else "the descriptor's bench chose none"
    if unclear := undecided(chosen, choices):
        rule += f"; {', '.join(unclear)} as the adapter prefers, since bench could not tell which is faster"
    record.set("primitives", won, rule)
    pooling, rule, option = pooling_of(case)
    record.set("pooling", pooling, rule, option=option, checkpoint=case.spec.source)
    given, refused = roles(case)
    rule = (
        "one device runs the whole model" if case.ranks * case.stages == 1 else "each rank runs its part of the model"
    )
    rule += "" if case.request.beside else "; no other device of the host is known"
    record.set("roles", given, rule, rejected=refused)
