"""Which implementation of a primitive is used, from readings of each, and how far that can be trusted."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vllm_probe.bench.timing import STATUSES, Reading
from vllm_probe.core.capability import Confidence, Measurement, Status
from vllm_probe.vendors.mapper import Choice, choose


class Decided(NamedTuple):
    """A choice, and what it rests on."""

    choice: Choice
    about: Measurement


def decide(names: Sequence[str], readings: Mapping[str, Sequence[Reading]], method: str) -> Decided | None:
    """What to use of `names`, in the order of the adapter's preference; null where none was timed.

    Times are sums over the readings of a name. A difference within their spread tells nothing, and none of them does
    where one was taken without its share of the processor: then the order of the adapter holds. What was skipped keeps
    its place in it; what failed is refused.
    """
    gaps = {name: next((each for each in readings[name] if each.value is None), None) for name in names}
    refused = {
        name: gap.measurement.reason or "" for name, gap in gaps.items() if gap and gap.measurement.status != "skipped"
    }
    times = {
        name: math.fsum(each.value or 0.0 for each in readings[name]) / 1e6 for name, gap in gaps.items() if gap is None
    }
    if not times:
        return None
    if len(names) - len(refused) == 1:
        about = Measurement(source="measured", status="measured", method=method)
        return Decided(choose(names, times, refused), about)
    timed = {name: [each.measurement for each in readings[name]] for name in times}
    worst = max((about.status for abouts in timed.values() for about in abouts), key=STATUSES.index)
    spread_pct = max(about.spread_pct or 0.0 for abouts in timed.values() for about in abouts)
    apart = spread_pct / 100 if STATUSES.index(worst) < STATUSES.index("throttled") else math.inf
    choice = choose(names, times, refused, apart)
    skipped = [f"{name}: {gap.measurement.reason}" for name, gap in gaps.items() if gap and name not in refused]
    reasons = [*_unclear(choice, times, worst, spread_pct), *_disturbed(timed), *skipped]
    is_clear = choice.ratio is not None
    status: Status = worst if is_clear or worst != "measured" else "noisy"
    confidence: Confidence = "high" if status == "measured" and not skipped else "medium"
    about = Measurement(
        source="measured",
        status=status,
        reason="; ".join(reasons) or None,
        confidence=confidence if is_clear else "low",
        samples=sum(about.samples or 0 for abouts in timed.values() for about in abouts),
        spread_pct=spread_pct,
        method=method,
    )
    return Decided(choice, about)


def _unclear(choice: Choice, times: Mapping[str, float], worst: Status, spread_pct: float) -> list[str]:
    """Why the order of the adapter holds, where it does."""
    if choice.ratio is not None:
        return []
    name, others = choice.implementation, sorted(times.keys() - {choice.implementation}, key=times.__getitem__)
    if name not in times or not others:
        return [f"the adapter prefers {name}, and no other was timed beside it"]
    took = f"{others[0]} took {times[others[0]] / times[name]:.3g} times as long as {name}"
    why = f"within the spread of {spread_pct:.1f} %" if worst in {"measured", "noisy"} else f"in {worst} readings"
    return [f"{took}, {why}: the adapter's order is kept"]


def _disturbed(timed: Mapping[str, Sequence[Measurement]]) -> list[str]:
    """What was wrong with the worst reading of each name, if anything was."""
    worst = {name: max(abouts, key=lambda about: STATUSES.index(about.status)) for name, abouts in timed.items()}
    return [f"{name}: {about.status}, {about.reason}" for name, about in worst.items() if about.status != "measured"]
