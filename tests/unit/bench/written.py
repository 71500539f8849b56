"""The document around one section."""

import json

from tests.unit.bench.fake import STAMP
from vllm_probe.bench.report import Report
from vllm_probe.bench.run import SECTIONS
from vllm_probe.bench.section import Section
from vllm_probe.core import codec
from vllm_probe.core.capability import Capability


def document(section: Section) -> Capability:
    """What bench writes when only this section has read something."""
    others = [kind(section.adapter, section.plan) for kind in SECTIONS if not isinstance(section, kind)]
    return Report(section.adapter, STAMP, [*others, section]).capability()


def read_back(document: Capability) -> Capability:
    return codec.from_json(Capability, json.loads(codec.dumps(document)))
