"""JSON in what a tool prints, behind warnings and log lines that may begin with a bracket too."""

import json
import re
from itertools import islice

from vllm_probe.core.values import JsonValue

_MOST_BEGINNINGS = 64


def json_behind(text: str) -> JsonValue:
    """The first object, or list of objects, that begins a line of `text`; null without one.

    `[2026-05-01 10:00:00] ...` and `[0] ...` before it are none. At most 64 lines that look like a beginning are tried.
    """
    decoder = json.JSONDecoder()
    for match in islice(re.finditer(r"^[ \t]*(?=[{\[])", text, re.MULTILINE), _MOST_BEGINNINGS):
        try:
            found = decoder.raw_decode(text, match.end())[0]
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) or any(isinstance(each, dict) for each in found):
            return found
    return None
