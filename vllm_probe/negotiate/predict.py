"""Speed by roofline over the descriptor's rates: how long a request takes with one candidate."""

import math
from dataclasses import dataclass

from vllm_probe.core.config import BudgetVerdict, Estimate, Prediction
from vllm_probe.core.units import format_figure
from vllm_probe.negotiate.candidates import Candidate
from vllm_probe.negotiate.case import Case
from vllm_probe.negotiate.gemm import WIDTHS
from vllm_probe.negotiate.laws import Row, by_device, table
from vllm_probe.negotiate.shape import Shape
from vllm_probe.negotiate.support import WORDS

_SURPRISE = 3.0  # a measured speed that differs more is of another workload, or in another unit


@dataclass(frozen=True, slots=True)
class Roofline:
    """Times of one candidate on every rank, by the engine's law of speed.

    A step takes the longer of arithmetic and reading for its linears, the same for its attention, and beside that a
    time for each layer, for the step itself, and for the sums of tensor-parallel ranks.
    """

    case: Case
    candidate: Candidate
    shape: Shape

    @property
    def law(self) -> Row:
        """The law of the engine on this device type; that of experts where the model has them."""
        law = speed_law(self.case)
        return {**law, **law["experts"]} if self.case.spec.moe and "experts" in law else law

    def step_s(self) -> float:
        """Seconds of one decode step of all sequences."""
        case, work, seqs = self.case, self.case.workload, self.shape.seqs
        context = work.input_len + work.output_len / 2
        cache = seqs * case.need.kv_read_bytes(context, WIDTHS[self.shape.kv_dtype], case.ranks)
        return self._step(seqs, context, cache, samples=True)

    def prompt_s(self, rows: int | None = None) -> float:
        """Seconds of one prompt in steps of `rows` tokens, by default its own; causal attention sees half of it."""
        case, length = self.case, self.case.workload.input_len
        rows = max(1, min(self.shape.tokens, rows or length))
        context = length / (1 if case.spec.is_encoder else 2)
        return length / rows * self._step(rows, context, 0.0, samples=False)

    def tokens_per_s(self) -> float:
        """Prompt tokens a second of a pooling model, generated ones of a generator, with every sequence busy."""
        work, seqs = self.case.workload, self.shape.seqs
        prompts = seqs * max(self.prompt_s(seqs * work.input_len), float(self.law["serial_us"]) * 1e-6)
        if not work.output_len:
            return seqs * work.input_len / prompts
        return seqs * work.output_len / (prompts + work.output_len * self.step_s())

    def tpot_s(self) -> float:
        """Seconds between two tokens of a sequence: a step, and what the prompts of the others take in between."""
        others = (self.shape.seqs - 1) * self.prompt_s() / max(1, self.case.workload.output_len)
        return self.step_s() + float(self.law["stall"]) * others

    def ttft_s(self) -> float:
        """Seconds to the vector of a request that is alone, or to its first token under the workload.

        The latter is the mean of ten rounds that begin all at once: a prompt waits for the request to be read, for the
        step that runs, and in the first round for half of the others.
        """
        work, law = self.case.workload, self.law
        alone = float(law["request_ms"]) * 1e-3 + self.prompt_s()
        if not work.output_len or work.concurrency == 1:
            return alone
        return alone + self.step_s() + (work.concurrency - 1) / 2 * float(law["burst"]) * self.prompt_s()

    def launch_share(self) -> float:
        """Share of the shortest step of the workload that launches take: a decode step, else the prompt of one text."""
        if self.case.workload.output_len:
            return self._fixed_s(self.shape.seqs) / self.step_s()
        return self._fixed_s(self.case.workload.input_len) / self.prompt_s()

    def _fixed_s(self, rows: int) -> float:
        """Seconds of a step of `rows` tokens that are neither arithmetic nor reading."""
        law, layers = self.law, self.case.spec.num_layers
        return (layers * float(law["layer_us"]) + float(law["step_us"])) * 1e-6 + self._all_reduce(rows)

    def _step(self, rows: int, context: float, cache_bytes: float, *, samples: bool) -> float:
        case, ranks, word = self.case, self.case.ranks, self.candidate.compute
        read = case.need.read_bytes(rows, self.candidate.weights, samples=samples, ranks=ranks)
        linears = case.need.flops_per_token(samples=samples, ranks=ranks) * rows
        attention = case.need.attention_flops(context) / ranks * rows
        beside = max(self._beside(attention, rows), cache_bytes / self._bandwidth())
        return max(linears / self._rate(word, rows), read / self._bandwidth()) + beside + self._fixed_s(rows)

    def _rate(self, word: str, rows: int) -> float:
        """FLOP/s that the engine reaches with a format; what a data sheet states counts for what benches find of it."""
        rates = self.case.rates
        rate, known = rates.at(word, rows), rates.of(word)
        share = 1.0 if known and known.is_measured else float(table("speed")["stated"]["compute"])
        return (rate or math.inf) * 1e9 * share * self._filled(rows) * float(self.law["compute"])

    def _filled(self, rows: int) -> float:
        """Share of the rows in the tiles of matrix products that hold tokens: each expert in use leaves some empty."""
        moe = self.case.spec.moe
        if moe is None or "empty_rows" not in self.law:
            return 1.0
        share = moe.num_active / moe.num_experts
        held, in_use = rows * moe.num_active, moe.num_experts * (1 - (1 - share) ** rows)
        return held / (held + float(self.law["empty_rows"]) * in_use)

    def _bandwidth(self) -> float:
        rates = self.case.rates
        share = 1.0 if rates.has_measured_bandwidth else float(table("speed")["stated"]["bandwidth"])
        return (rates.bandwidth or math.inf) * 1e9 * share * float(self.law["bandwidth"])

    def _all_reduce(self, rows: int) -> float:
        """Seconds in which n ranks sum `rows` hidden states twice a layer: 2 (n - 1) / n of their bytes on the link."""
        case, ranks = self.case, self.case.ranks
        found = link(case)
        if found is None or ranks == 1:
            return 0.0
        sent = 2 * (ranks - 1) / ranks * rows * case.spec.hidden_size * WIDTHS[self.candidate.dtype]
        each = sent / (float(found["gb_s"]) * 1e9) + float(found["us"]) * 1e-6
        return 2 * case.spec.num_layers * each

    def _beside(self, attention: float, rows: int) -> float:
        """Seconds of attention; on a CPU also of norms, sums and activations, on vector units whose share the law has.

        A layer passes over 4 hidden + intermediate values of a token: two norms, two sums and the activation.
        """
        case, law, word = self.case, self.law, WORDS[self.candidate.dtype]
        if "attention" not in law:
            return attention / self._rate(word if case.rates.of(word) else self.candidate.compute, rows)
        spec, vector = case.spec, case.rates.of("fp32") or case.rates.of(word)
        operations = attention / float(law["attention"])
        operations += (
            float(law["value_flops"]) * rows * spec.num_layers * (4 * spec.hidden_size + spec.intermediate_size)
        )
        return operations / (vector.gflops * 1e9 * float(law["compute"])) if vector else 0.0


def predict(case: Case, candidate: Candidate, shape: Shape, verdict: BudgetVerdict) -> Prediction:
    """Tokens per second, TTFT and TPOT with bands, or the reason why nothing is predicted."""
    if reason := _withheld(case, candidate, verdict):
        return Prediction(method=f"withheld: {reason}", summary=f"withheld: {reason}")
    found = Roofline(case, candidate, shape)
    typical, measured = found.tokens_per_s(), case.request.measured_tokens_per_s
    scale = measured / typical if measured else 1.0
    return Prediction(
        tokens_per_s=_estimate(case, "tokens_per_s", typical * scale),
        ttft_s=_estimate(case, "ttft_s", found.ttft_s() / scale),
        tpot_s=_estimate(case, "tpot_s", found.tpot_s() / scale) if case.workload.output_len else Estimate(),
        method=_method(case, candidate) + (_calibration(case, typical, scale) if measured else ""),
        summary=_summary(case, candidate) + (", scaled to the speed that was measured" if measured else ""),
    )


def _withheld(case: Case, candidate: Candidate, verdict: BudgetVerdict) -> str | None:
    if verdict not in ("boots", "unknown"):
        return f"it does not boot ({verdict})"
    if suspects := case.rates.suspects():
        return suspects[0]
    if case.rates.of(candidate.compute) is None or case.rates.bandwidth is None:
        missing = "bandwidth" if case.rates.bandwidth is None else candidate.compute
        return f"the descriptor gives no rate for {missing}"
    if case.stages > 1:
        return f"how far {case.stages} pipeline stages overlap is not known"
    if case.ranks > 1 and link(case) is None:
        return f"the rate at which {case.ranks} ranks exchange sums is not known"
    return None


def _estimate(case: Case, key: str, value: float) -> Estimate:
    """The band of the law: [slow, fast] are shares of the speed that four of five measured rows lie between."""
    bands = speed_law(case)["calibrated" if case.request.measured_tokens_per_s else "band"]
    slow, fast = bands[key]
    ends = (value * slow, value * fast) if key == "tokens_per_s" else (value / fast, value / slow)
    return Estimate(value=value, low=ends[0], high=ends[1])


def _summary(case: Case, candidate: Candidate) -> str:
    """`roofline over bf16 974 GFLOP/s (measured, in short runs) and 34 GB/s (stated)`."""
    how = "measured" if case.rates.has_measured_bandwidth else "stated"
    bandwidth = f"{format_figure(case.rates.bandwidth or 0)} GB/s ({how})"
    return f"roofline over {candidate.compute} {case.rates.of(candidate.compute)} and {bandwidth}"


def _method(case: Case, candidate: Candidate) -> str:
    law, vector, stated = speed_law(case), case.rates.of("fp32"), table("speed")["stated"]
    beside = f", attention over {law['attention']:.0%} of fp32 {vector}" if "attention" in law and vector else ""
    if case.ranks > 1 and (found := link(case)):
        beside += (
            f", on each of {case.ranks} ranks, whose sums go at {found['gb_s']:g} GB/s and {found['us']:g} us each"
            f" ({found['source']})"
        )
    own = Roofline(case, candidate, NO_SHAPE).law
    rate = case.rates.of(candidate.compute)
    sheet = [
        f"{share:.0%} of a stated {what}"
        for what, share, is_measured in (
            ("rate", stated["compute"], rate and rate.is_measured),
            ("bandwidth", stated["bandwidth"], case.rates.has_measured_bandwidth),
        )
        if not is_measured
    ]
    counts = f"; {' and '.join(sheet)} count as measured ({stated['source']})" if sheet else ""
    rounds = "; the time to the first token is the mean of ten rounds that begin all at once"
    rounds = rounds if case.workload.output_len and case.workload.concurrency > 1 else ""
    fixed = ", ".join(
        f"{law[key]:g} us a {what}"
        for key, what in (("layer_us", "layer"), ("step_us", "step"), ("serial_us", "request"))
        if law[key]
    )
    return (
        f"each step: the longer of FLOPs over {candidate.compute} {rate}{beside} and bytes"
        f" over {format_figure(case.rates.bandwidth or 0)} GB/s, at {own['compute']:.0%} and {own['bandwidth']:.0%}"
        f" of them{counts}{f', beside {fixed}' if fixed else ''}{rounds} ({law['source']})"
    )


def _calibration(case: Case, typical: float, scale: float) -> str:
    measured = case.request.measured_tokens_per_s or 0.0
    doubt = ""
    if not 1 / _SURPRISE <= scale <= _SURPRISE:
        doubt = "; so far apart that the measured workload or unit may be another"
    return (
        f"; all times scaled by the {format_figure(measured)} tokens/s that were measured where"
        f" {format_figure(typical)} were predicted, which narrows the bands{doubt}"
    )


def link(case: Case) -> Row | None:
    """How fast ranks exchange sums: what the descriptor states, else what such devices are built with; null unknown."""
    links, peer = table("speed")["links"], case.capability.dma.peer_gb_s
    known = links.get(case.device_type)
    if known is None:
        return None
    arch = case.capability.device.arch or ""
    count = case.request.num_devices
    if count is not None and case.ranks > count:
        network: Row = links["network"]
        return network
    found: Row = links["linked" if arch.startswith(tuple(known)) else "bus"]
    if peer:
        return {**found, "gb_s": peer, "source": "the descriptor's peer_gb_s"}
    return found


def speed_law(case: Case) -> Row:
    """The engine's law of speed on the device type of the case."""
    return by_device(table("speed")[case.request.engine], case.device_type)


NO_SHAPE = Shape(max_model_len=1, seqs=1, tokens=1, block_size=1, kv_dtype="bfloat16", has_graphs=False)
"""For what does not depend on the sizes."""
