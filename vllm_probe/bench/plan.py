"""What bench measures, for how long, and in how much memory."""

from collections.abc import Callable
from dataclasses import dataclass

from vllm_probe.bench.expectations import Expectations
from vllm_probe.core.device import Device
from vllm_probe.core.errors import UnknownName
from vllm_probe.core.system import Host

GROUPS = ("gemm", "memory", "copies", "overlap", "launch", "weight-only", "primitives", "group-width", "thermal")
"""Names that `--only` takes."""

NEEDED = frozenset({"gemm", "memory"})
"""Without these a document says too little to be kept."""

QUICK = NEEDED | {"copies", "launch"}
"""What `--quick` measures unless `--only` says otherwise."""

NOT_RUN = "not run yet"
"""Reason of what may still come."""

_MIB = 1 << 20
_ASSUMED_CACHE_BYTES = 64 * _MIB
_LARGEST_ARRAY_BYTES = 1024 * _MIB
_END_S, _HARD_S, _STOP_S = 25.5, 110.0, 115.0
_QUICK_HARD_S, _QUICK_STOP_S = 35.0, 40.0
_COMPILE_S, _LOAD_COMPILED_S = 60.0, 3.0
_SETTLE_S, _SHORT_SETTLE_S, _SUSTAINED_S = 10.0, 1.0, 2.5


def _whole(dtype: str) -> int:  # noqa: ARG001 - every format alike
    return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """One run of bench.

    Attributes:
        quick: one point per format, and the curve only where it is needed.
        groups: which of `GROUPS` run.
        named: those of them that were asked for by name, which may take longer and look at more.
        rows: activation rows of a curve.
        point_rows: the row count measured first, and the only one of a format without a curve.
        shrink: number format to what K and N of its products are divided by, on a device too slow for whole ones.
        depth: K of the matrix products.
        width: N of the matrix products.
        rounds: rounds that every test gets, interleaved with those of other tests.
        most_rounds: rounds that a test gets while its median is not settled and time is left.
        round_s: timed seconds of one test in one round.
        batch_s: shortest batch between two clock readings.
        soft_s: when it is over, no further optional test begins.
        late_s: when it is over, no process of its own begins either; two of them and a load fit behind `soft_s`.
        end_s: when it is over, a long test that began ends.
        hard_s: when it is over, everything stops.
        stop_s: when it is over, a test that does not end is left to itself.
        settle_s: load at most until the device is steady.
        sustained_s: load after that, over which the sustained rate is taken.
        cache_bytes: last-level cache that the threads see.
        cache_known: false when `cache_bytes` is an assumption.
        operand_bytes: size of the weights of one format that take turns.
        array_bytes: size of each of the three arrays of the memory tests.
        doubts: what all values of the device are to be doubted for.
        timer_doubts: and those that its own timer gave.
        expectations: what the device should give.
        children: where processes of our own are started, null where none may be.
    """

    quick: bool
    groups: frozenset[str]
    named: frozenset[str]
    rows: tuple[int, ...] = (32, 64, 128, 256, 512, 1024, 2048, 4096)
    point_rows: int = 512
    shrink: Callable[[str], int] = _whole
    depth: int = 1024
    width: int = 4096
    rounds: int = 3
    most_rounds: int
    round_s: float
    batch_s: float = 0.005
    soft_s: float
    late_s: float
    end_s: float
    hard_s: float
    stop_s: float
    settle_s: float
    sustained_s: float
    cache_bytes: int
    cache_known: bool
    operand_bytes: int
    array_bytes: int
    doubts: tuple[str, ...] = ()
    timer_doubts: tuple[str, ...] = ()
    expectations: Expectations
    children: Host | None = None

    def product(self, dtype: str) -> tuple[int, int]:
        """K and N of the matrix products in `dtype`."""
        return self.depth // self.shrink(dtype), self.width // self.shrink(dtype)

    @property
    def timed_doubts(self) -> tuple[str, ...]:
        """What a value is to be doubted for that the device's own timer gave."""
        return self.doubts + self.timer_doubts

    @property
    def compile_s(self) -> float:
        """Longest wait for an implementation that is being compiled."""
        return _COMPILE_S if "primitives" in self.named else _LOAD_COMPILED_S

    def absence(self, group: str) -> str:
        """Why `group` has no values: it was left out, or its turn has not come."""
        if group in self.groups:
            return NOT_RUN
        return f"{'--quick' if self.quick and self.groups >= QUICK else '--only'} leaves {group} out"


def make_plan(
    device: Device,
    quick: bool,
    only: frozenset[str],
    expectations: Expectations | None = None,
    children: Host | None = None,
    sustained_s: float | None = None,
) -> BenchPlan:
    """A plan for `device`: about 8 s quick and 30 s in full with start-up where it is idle, 25 % of its memory at most.

    Weights that take turns exceed three times the last-level cache, arrays four times. `only` names the groups
    to run; empty means all. Without `expectations` the device itself is all that is known. `sustained_s` asks for so
    long a load, whatever time the rest takes; primitives that it names may be compiled, which takes up to a minute.

    Raises:
        UnknownName: `only` holds something else than `GROUPS`.
    """
    if unknown := sorted(only.difference(GROUPS)):
        hint = f"the measurements are {', '.join(GROUPS)}"
        raise UnknownName(f"no measurement is called {', '.join(map(repr, unknown))}", hint=hint)
    caches = device.details.get("caches") or {}
    known = max((size for level, size in caches.items() if not level.startswith("l1")), default=None)
    cache = known or _ASSUMED_CACHE_BYTES
    quarter = (device.memory.usable_bytes or 4096 * _MIB) // 4
    groups = only or (QUICK if quick else frozenset(GROUPS))
    compiling_s = _COMPILE_S if "primitives" in only else 0.0
    extra_s = compiling_s + (0.0 if sustained_s is None else sustained_s + _SETTLE_S)
    return BenchPlan(
        quick=quick,
        named=only,
        groups=groups if sustained_s is None else groups | {"thermal"},
        most_rounds=3 if quick else 6,
        round_s=0.03 if quick else 0.09,
        soft_s=compiling_s + (4.7 if quick else 17.0),
        late_s=compiling_s + (5.3 if quick else 21.5),
        cache_bytes=cache,
        cache_known=known is not None,
        operand_bytes=min(3 * cache, quarter // 12),
        array_bytes=min(max(4 * cache, 64 * _MIB), _LARGEST_ARRAY_BYTES, quarter // 6),
        end_s=_END_S + extra_s,
        hard_s=(_QUICK_HARD_S if quick else _HARD_S) + extra_s,
        stop_s=(_QUICK_STOP_S if quick else _STOP_S) + extra_s,
        settle_s=_SHORT_SETTLE_S if sustained_s is None else _SETTLE_S,
        sustained_s=_SUSTAINED_S if sustained_s is None else sustained_s,
        expectations=expectations or Expectations(device=device),
        children=children,
    )
