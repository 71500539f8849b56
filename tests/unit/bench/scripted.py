"""Sections on the scripted device, whose clock makes every time exact."""

from dataclasses import replace
from typing import Any

from vllm_probe.bench.facts import Sheet
from vllm_probe.bench.plan import BenchPlan, make_plan
from vllm_probe.bench.section import Section
from vllm_probe.bench.timing import Stopwatch
from vllm_probe.core.capability import Measurement
from vllm_probe.core.scene import Facts, Scene
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.null.adapter import NullAdapter
from vllm_probe.vendors.null.probe import Script, probe

HOST = ReplayHost(Scene(facts=Facts()))


def play(script: Script, kind: type[NullAdapter] = NullAdapter, **device: Any) -> NullAdapter:
    """An open adapter on the device that a script describes."""
    adapter = kind(HOST)
    adapter.script = script
    adapter.copy_queues = script.copy_queues
    adapter.set_device(replace(probe(HOST).devices[0], **device))
    adapter.open()
    return adapter


def short(adapter: NullAdapter, quick: bool = False, only: frozenset[str] = frozenset()) -> BenchPlan:
    """A plan that turns seconds of the script into few calls."""
    return replace(make_plan(adapter.device, quick, only), round_s=0.02, batch_s=0.002)


def run(section: Section) -> Sheet:
    """The sheet after all cases of a section."""
    stopwatch = Stopwatch(section.adapter, section.plan)
    for batch in section.batches():
        for case, reading in stopwatch.run(batch, lambda case: None):
            section.readings[case.key] = reading
    return written(section)


def written(section: Section) -> Sheet:
    sheet = Sheet()
    section.write(sheet)
    return sheet


def at(sheet: Sheet, pointer: str) -> tuple[Any, Measurement]:
    """A value of a sheet and how it was obtained."""
    value: Any = sheet.values
    for key in pointer.split("/")[1:]:
        value = value[key]
    return value, sheet.measurements[pointer]
