"""Two descriptors side by side."""

from rich.console import Group
from rich.text import Text

from vllm_probe.cli.render.console import figure, table
from vllm_probe.core.values import JsonValue
from vllm_probe.vendors.difference import Difference

_STYLES = {"FASTER": "green", "SLOWER": "red", "AMBIGUOUS": "yellow", "SAME": "dim"}

_AMBIGUOUS = (
    "AMBIGUOUS: further apart than 5 %, and by less than the rounds of a run differ, or one reading is doubtful"
)


def render(found: Difference) -> Group:
    """Each value that differs, with the ratio of the second to the first."""
    judged = any(change.outcome for change in found.changes)
    rows = table("value", "A", "B", "B / A", *([""] if judged else []), right=("A", "B", "B / A"))
    rows.columns[0].no_wrap = True
    for change in found.changes:
        ratio = "" if change.ratio is None else figure(change.ratio)
        outcome = [Text(change.outcome or "", style=_STYLES.get(change.outcome or "", ""))] if judged else []
        rows.add_row(change.pointer, _shown(change.old), _shown(change.new), ratio, *outcome)
    same = f"{found.same} value" + "s" * (found.same != 1) + " alike"
    counted = found.outcomes()
    if counts := [f"{count} {outcome}" for outcome, count in counted.items() if count]:
        same += f"; of those measured {', '.join(counts)}"
    heading = Text.assemble(("A", "bold"), f" {found.old}\n", ("B", "bold"), f" {found.new}")
    notes = [Text(_AMBIGUOUS, style="dim")] if counted["AMBIGUOUS"] else []
    return Group(heading, Text(), *([rows] if found.changes else []), Text(same), *notes)


def _shown(value: JsonValue) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return figure(value)
