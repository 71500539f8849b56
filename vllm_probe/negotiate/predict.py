"""Speed by roofline over the measured curve: how long a request takes with one candidate."""

from dataclasses import dataclass

from vllm_probe.core.config import BudgetVerdict, Estimate, Prediction
from vllm_probe.core.units import format_figure
from vllm_probe.negotiate.budget import Shape
from vllm_probe.negotiate.candidates import Candidate
from vllm_probe.negotiate.case import Case
from vllm_probe.negotiate.gemm import WIDTHS
from vllm_probe.negotiate.laws import Row, by_device


@dataclass(frozen=True, slots=True)
class Roofline:
    """Times of one candidate: each step takes the longer of its arithmetic and its memory traffic.

    `compute` and `bandwidth` are the shares of the descriptor's rates that the engine reaches. Every rank does its part
    of a step; `link` is the GB/s and the us at which ranks sum their parts, null to leave that out.
    """

    case: Case
    candidate: Candidate
    shape: Shape
    compute: float = 1.0
    bandwidth: float = 1.0
    link: tuple[float, float] | None = None

    def prefill_s(self, rows: int) -> float:
        """Seconds for one prompt token in a step of `rows` tokens; causal attention sees half of the prompt."""
        case, rows = self.case, max(1, rows)
        context = case.workload.input_len / (1 if case.spec.is_encoder else 2)
        read = case.need.read_bytes(rows, self.candidate.weights, samples=False, ranks=case.ranks)
        linears = case.need.flops_per_token(samples=False, ranks=case.ranks)
        attention = case.need.attention_flops(context) / case.ranks
        return self._longer(linears * rows, attention * rows, read, rows) / rows

    def step_s(self) -> float:
        """Seconds of one decode step of all sequences."""
        case, context = self.case, self.case.workload.input_len + self.case.workload.output_len / 2
        seqs, linears = self.shape.seqs, case.need.flops_per_token(samples=True, ranks=case.ranks)
        read = case.need.read_bytes(seqs, self.candidate.weights, samples=True, ranks=case.ranks)
        read += seqs * case.need.kv_read_bytes(context, WIDTHS[self.shape.kv_dtype], case.ranks)
        attention = case.need.attention_flops(context) / case.ranks
        return self._longer(linears * seqs, attention * seqs, read, seqs)

    def tokens_per_s(self) -> float:
        """Prompt tokens a second of a pooling model, generated ones of a generator."""
        work = self.case.workload
        prefill = self.prefill_s(min(self.shape.tokens, self.shape.seqs * work.input_len))
        if not work.output_len:
            return 1 / prefill
        return (
            self.shape.seqs
            * work.output_len
            / (self.shape.seqs * work.input_len * prefill + work.output_len * self.step_s())
        )

    def ttft_s(self) -> float:
        """Seconds to the first token or vector of a request that is alone."""
        work = self.case.workload
        return work.input_len * self.prefill_s(min(self.shape.tokens, work.input_len))

    def _longer(self, linears: float, attention: float, read_bytes: float, rows: int) -> float:
        """Seconds of a step with so many FLOPs in linears and in attention; operators of a layer begin one by one."""
        case, law = self.case, _speed(self.case)
        rate, bandwidth = case.rates.at(self.candidate.compute, rows), case.rates.bandwidth
        arithmetic = linears / (rate * 1e9) + self._beside(attention, rows, rate) if rate else 0.0
        traffic = read_bytes / (bandwidth * 1e9 * self.bandwidth) if bandwidth else 0.0
        return (
            max(arithmetic / self.compute, traffic)
            + case.spec.num_layers * float(law["layer_us"]) * 1e-6
            + (self._all_reduce(rows))
        )

    def _all_reduce(self, rows: int) -> float:
        """Seconds in which n ranks sum `rows` hidden states twice a layer: 2 (n - 1) / n of their bytes on the link."""
        case, ranks = self.case, self.case.ranks
        if self.link is None or ranks == 1:
            return 0.0
        sent = 2 * (ranks - 1) / ranks * rows * case.spec.hidden_size * WIDTHS[self.candidate.dtype]
        return 2 * case.spec.num_layers * (sent / (self.link[0] * 1e9) + self.link[1] * 1e-6)

    def _beside(self, attention: float, rows: int, rate: float) -> float:
        """Seconds of attention, norms, sums and activations, on vector units if the engine's law knows their share.

        A layer passes over 4 hidden + intermediate values of a token: two norms, two sums and the activation.
        """
        case, law = self.case, _speed(self.case)
        if "attention" not in law:
            return attention / (rate * 1e9)
        spec, vector = case.spec, case.rates.of("fp32")
        operations = attention / float(law["attention"])
        operations += (
            float(law["value_flops"]) * rows * spec.num_layers * (4 * spec.hidden_size + spec.intermediate_size)
        )
        return operations / ((vector.gflops if vector else rate) * 1e9)


def predict(case: Case, candidate: Candidate, shape: Shape, verdict: BudgetVerdict) -> Prediction:
    """Tokens per second, TTFT and TPOT with bands, or the reason why nothing is predicted."""
    if verdict not in ("boots", "unknown"):
        return Prediction(method=f"withheld: it does not boot ({verdict})")
    if suspects := case.rates.suspects():
        return Prediction(method=f"withheld: {suspects[0]}")
    if case.rates.of(candidate.compute) is None or case.rates.bandwidth is None:
        missing = "bandwidth" if case.rates.bandwidth is None else candidate.compute
        return Prediction(method=f"withheld: the descriptor gives no rate for {missing}")
    speed = _speed(case)
    if case.stages > 1:
        return Prediction(method=f"withheld: how far {case.stages} pipeline stages overlap is not known")
    if case.ranks > 1 and "link" not in speed:
        return Prediction(method=f"withheld: the rate at which {case.ranks} ranks exchange sums is not known")
    shares = zip(speed["compute"], speed["bandwidth"], speed.get("link", [None] * 3), strict=True)
    low, value, high = (Roofline(case, candidate, shape, *share) for share in shares)
    return Prediction(
        tokens_per_s=Estimate(value=value.tokens_per_s(), low=low.tokens_per_s(), high=high.tokens_per_s()),
        ttft_s=Estimate(value=value.ttft_s(), low=high.ttft_s(), high=low.ttft_s()),
        tpot_s=Estimate(value=value.step_s(), low=high.step_s(), high=low.step_s())
        if case.workload.output_len
        else Estimate(),
        method=_method(case, candidate),
    )


def _method(case: Case, candidate: Candidate) -> str:
    law, vector = _speed(case), case.rates.of("fp32")
    beside = f", attention over {law['attention']:.0%} of fp32 {vector}" if "attention" in law and vector else ""
    if case.ranks > 1:
        slow, typical, fast = (f"{rate:g}" for rate, _ in law["link"])
        beside += (
            f", on each of {case.ranks} ranks, whose link no descriptor states: sums go at {typical} GB/s,"
            f" the band from {slow} to {fast} ({law['link_source']})"
        )
    over = "" if case.rates.bandwidth is None else format_figure(case.rates.bandwidth)
    return (
        f"each step: the longer of FLOPs over {candidate.compute} {case.rates.of(candidate.compute)}{beside} and bytes"
        f" over {over} GB/s, at {law['compute'][1]:.0%} and {law['bandwidth'][1]:.0%} of them"
        f" ({law['source']})"
    )


def _speed(case: Case) -> Row:
    return by_device(case.engine["speed"], case.device_type)
