"""The sweep over widths and threads: children are replaced by what they print."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from tests.unit.bench.fake import FakeAdapter, Values, cpu
from tests.unit.bench.written import document, read_back
from vllm_probe.bench.child import Order, Point, time_points
from vllm_probe.bench.plan import BenchPlan, make_plan
from vllm_probe.bench.timing import Stopwatch
from vllm_probe.bench.width import GroupWidthSection
from vllm_probe.core import codec
from vllm_probe.core.capability import Capability, Measurement, Status
from vllm_probe.core.device import Device
from vllm_probe.core.primitive import Linear, Primitive, Support
from vllm_probe.core.scene import Facts, Scene
from vllm_probe.core.schema import violations
from vllm_probe.core.system import CommandResult
from vllm_probe.host.replay import ReplayHost

Rates = dict[tuple[int, int, str], float]
"""(lanes, threads, format) to GFLOP/s."""

USUAL: Rates = {
    (16, 1, "bf16"): 250.0,
    (16, 2, "bf16"): 500.0,
    (16, 2, "int8"): 800.0,
    (8, 2, "bf16"): 50.0,
    (8, 2, "int8"): 300.0,
}


class Cpu(FakeAdapter):
    """A processor of 16 lanes that a process can limit to 8."""

    def __init__(self, device: Device | None = None) -> None:
        super().__init__(device)
        self.holds = True
        self.limited: list[int] = []
        self.close()

    def _process_widths(self) -> tuple[int, ...]:
        return (16, 8)

    def _limit_width(self, lanes: int) -> bool:
        self.limited.append(lanes)
        return self.holds

    def pass_by(self, seconds: float) -> None:
        self._work("waiting", 1e9 * seconds)


class Parent(ReplayHost):
    """Answers as children would that reach `rates`; `answers` replaces what one of them says."""

    def __init__(self, rates: Rates, status: Status = "measured", asked: Callable[[], None] = lambda: None) -> None:
        super().__init__(Scene(facts=Facts()))
        self.rates, self.status, self.asked = rates, status, asked
        self.orders: list[Order] = []
        self.answers: dict[int, CommandResult] = {}

    def run(self, argv: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None) -> CommandResult:
        assert argv[1:3] == ["-m", "vllm_probe.bench.child"]
        order = codec.from_json(Order, json.loads(argv[3]))
        self.orders.append(order)
        self.asked()
        about = Measurement(source="measured", status=self.status, confidence="high", samples=300, spread_pct=1.0)
        points = tuple(
            Point(lanes=lanes, threads=threads, dtype=dtype, gflops=rate, measurement=about)
            for (lanes, threads, dtype), rate in self.rates.items()
            if lanes == order.lanes and threads in order.threads and dtype in order.formats
        )
        said = CommandResult(status="exited", returncode=0, stdout=json.dumps(codec.to_json(points)))
        return self.answers.get(order.lanes, said)


def plan(host: Parent | None = None) -> BenchPlan:
    groups = frozenset({"group-width"})
    return replace(make_plan(cpu(), quick=False, only=frozenset()), groups=groups, children=host)


def measured(adapter: FakeAdapter, host: Parent | None) -> GroupWidthSection:
    adapter.open()
    section = GroupWidthSection(adapter, plan(host))
    for batch in section.batches():
        for case, reading in Stopwatch(adapter, section.plan).run(batch, lambda case: None):
            section.readings[case.key] = reading
    return section


def swept(host: Parent, device: Device | None = None) -> Capability:
    made = document(measured(Cpu(device), host))
    assert violations("capability", codec.to_json(made)) == ()
    return made


def width_of(made: Capability) -> dict[str, object]:
    return {key: made.execution.group_width[key] for key in ("optimal", "threads", "flat")}


def test_the_fastest_setting_is_chosen_and_every_point_is_kept_with_its_samples() -> None:
    made = swept(Parent(USUAL))
    assert width_of(made) == {"optimal": 16, "threads": 2, "flat": [[16, 2]]}
    points = {
        (row["lanes"], row["threads"], row["dtype"]): row["gflops"] for row in made.execution.group_width["sweep"]
    }
    assert points == USUAL
    assert made.measurements["/execution/group_width/sweep"].samples == 300 * len(USUAL) >= 1000
    assert made.measurements["/execution/group_width/sweep/4"].samples == 300


def test_there_is_a_child_for_each_width_and_threads_are_swept_at_the_devices_own() -> None:
    host = Parent(USUAL)
    swept(host)
    assert [(order.lanes, order.threads, order.formats) for order in host.orders] == [
        (16, (1, 2), ("bf16", "int8")),
        (8, (2,), ("bf16", "int8")),
    ]


def test_both_widths_and_a_load_have_their_turn_behind_tests_that_took_all_their_time() -> None:
    adapter = Cpu()
    adapter.open()
    host = Parent(USUAL, asked=lambda: adapter.pass_by(2.9))
    section = GroupWidthSection(adapter, plan(host))
    stopwatch = Stopwatch(adapter, section.plan)
    adapter.pass_by(section.plan.soft_s + 0.5)
    for batch in section.batches():
        for case, reading in stopwatch.run(batch, lambda case: None):
            assert reading.value, (case.title, reading.measurement.reason)
    assert [order.lanes for order in host.orders] == [16, 8]
    assert section.plan.end_s - adapter.clock() >= 2.0


def test_what_a_program_loses_that_knows_no_quota_stands_in_the_sweep() -> None:
    quota = cpu(affinity="0-7", threads=2)
    made = swept(Parent({**USUAL, (16, 8, "bf16"): 90.0}), quota)
    assert {"lanes": 16, "threads": 8, "dtype": "bf16", "rows": 128, "gflops": 90.0} in made.execution.group_width[
        "sweep"
    ]
    assert made.execution.group_width["threads"] == 2


def test_settings_within_two_percent_are_flat_and_the_devices_own_is_kept_among_them() -> None:
    made = swept(Parent({**USUAL, (8, 2, "bf16"): 509.0, (16, 1, "bf16"): 495.0}))
    assert width_of(made) == {"optimal": 16, "threads": 2, "flat": [[8, 2], [16, 2]]}


def test_a_narrower_width_that_is_clearly_faster_is_chosen() -> None:
    made = swept(Parent({**USUAL, (8, 2, "bf16"): 600.0}))
    assert width_of(made) == {"optimal": 8, "threads": 2, "flat": [[8, 2]]}
    assert "1.20 times as fast" in (made.measurements["/execution/group_width/optimal"].reason or "")


def test_a_lead_on_a_busy_device_changes_nothing() -> None:
    made = swept(Parent({**USUAL, (8, 2, "bf16"): 600.0}, status="throttled"))
    assert made.execution.group_width["optimal"] == 16
    assert "on a busy device" in (made.measurements["/execution/group_width/optimal"].reason or "")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            CommandResult(status="exited", returncode=1, stderr="x\nRuntimeError: no 8 lanes"),
            "RuntimeError: no 8 lanes",
        ),
        (CommandResult(status="exited", returncode=-9), "status -9"),
        (CommandResult(status="timeout"), "timeout"),
        (CommandResult(status="exited", returncode=0, stdout="not json"), "answered something else"),
        (CommandResult(status="exited", returncode=0, stdout='[{"lanes": 8}]'), "answered something else"),
    ],
)
def test_a_child_that_fails_costs_its_width_only(answer: CommandResult, said: str) -> None:
    host = Parent(USUAL)
    host.answers[8] = answer
    made = swept(host)
    assert made.execution.group_width["optimal"] == 16
    assert [row["lanes"] for row in made.execution.group_width["sweep"]] == [16, 16, 16]
    reason = made.measurements["/execution/group_width/sweep"].reason or ""
    assert reason.startswith("8 lanes: ")
    assert said in reason


def test_without_any_child_every_value_says_why() -> None:
    made = document(measured(Cpu(), None))
    for key in ("optimal", "threads", "flat", "sweep"):
        assert made.unknown[f"/execution/group_width/{key}"] == "no process may be started here"
    host = Parent(USUAL)
    host.answers = dict.fromkeys((16, 8), CommandResult(status="missing"))
    assert document(measured(Cpu(), host)).measurements["/execution/group_width/optimal"].status == "error"


def test_a_device_of_one_width_is_unsupported() -> None:
    made = document(measured(FakeAdapter(), Parent({})))
    assert made.measurements["/execution/group_width/optimal"].status == "unsupported"


def test_a_sweep_is_read_back_from_a_written_document() -> None:
    before = measured(Cpu(), Parent(USUAL))
    adapter = Cpu()
    adapter.open()
    after = GroupWidthSection(adapter, plan())
    after.restore(read_back(document(before)))
    assert codec.dumps(document(after)) == codec.dumps(document(before))
    assert after.readings.keys() == before.readings.keys()


class Gpu(FakeAdapter):
    """Launches groups of 32, 64 or 128 lanes; 64 is fastest, but 32 for a single row."""

    def _supports(self, primitive: Primitive, dtype: str, shape: tuple[int, ...]) -> Support:
        return Support(ok=bool(self.implementations(primitive, dtype)))

    def _group_widths(self, implementation: str) -> tuple[int, ...]:
        return (32, 64, 128) if implementation == "plain" else ()

    def _prepare_wide(
        self, weight: Values, bias: Values | None, dtype: str, implementation: str, group_width: int
    ) -> Linear[Values]:
        usual = self._prepare_linear(weight, bias, dtype, implementation)
        times = {32: 2, 64: 1, 128: 4}[group_width]
        times_alone = {32: 1, 64: 2, 128: 4}[group_width]

        def wide(x: Values) -> Values:
            for _ in range((times_alone if x.shape[0] == 1 else times) - 1):
                usual(x)
            return usual(x)

        return wide


def test_widths_of_a_launch_are_swept_in_this_process() -> None:
    adapter = Gpu()
    del adapter.linears["int8", "plain"]
    made = document(measured(adapter, None))
    assert width_of(made) == {"optimal": 64, "threads": None, "flat": [[64, None]]}
    assert made.measurements["/execution/group_width/threads"].status == "unsupported"
    assert made.execution.group_width["optimal_few_rows"] == 32
    sweep = {(row["rows"], row["lanes"]): row["gflops"] for row in made.execution.group_width["sweep"]}
    assert sweep == pytest.approx(
        {(128, 32): 200, (128, 64): 400, (128, 128): 100, (1, 32): 400, (1, 64): 200, (1, 128): 100}
    )


def test_a_child_limits_its_width_once_and_times_each_format_with_each_thread_count() -> None:
    adapters: list[Cpu] = []

    def adapter_for(device: Device) -> Cpu:
        adapters.append(Cpu(device))
        return adapters[-1]

    order = Order(device=cpu(), lanes=8, threads=(1, 2), formats=("bf16", "int8"))
    points = time_points(order, adapter_for)
    assert [(point.lanes, point.threads, point.dtype) for point in points] == [
        (8, threads, dtype) for threads in (1, 2) for dtype in ("bf16", "int8")
    ]
    assert [adapter.limited for adapter in adapters] == [[8], []]
    assert [adapter.device.details["threads"] for adapter in adapters] == [1, 2]
    assert points[0].gflops == pytest.approx(400)
    assert (points[0].measurement.samples or 0) >= 3 * 0.08 * 400 / 0.537


def test_a_child_whose_libraries_ignore_the_limit_gives_up() -> None:
    adapter = Cpu()
    adapter.holds = False
    with pytest.raises(RuntimeError, match="do not keep to 8 lanes"):
        time_points(Order(device=cpu(), lanes=8, threads=(2,), formats=("bf16",)), lambda device: adapter)
