"""`intel_gpu_top -J`, which tells the clock of a GPU that i915 runs."""

import json
import re

from vllm_probe.core.system import Host

_LASTS_S = 1.0
_MOST = 1000  # samples, and beginnings of one
_NEXT = re.compile(r"^[,\[]?[ \t]*\{", re.MULTILINE)


def read_clock(host: Host, node: str) -> int | None:
    """Megahertz now, from the samples of one second; null without the program, or without the right to ask.

    `node` tells the card, which is not opened: the program reads the kernel's counters.
    """
    ended = host.run(("intel_gpu_top", "-J", "-s", "200", "-d", f"drm:{node}"), _LASTS_S)
    return parse_clock(ended.stdout)


def parse_clock(text: str) -> int | None:
    """Megahertz in the last sample that has one above 0, which is that of a GPU that rests.

    Samples stand one after the other, in 1.18 and later within a list, which does not end as the program does not.
    """
    decoder, position, found = json.JSONDecoder(), 0, None
    for _ in range(_MOST):
        start = text.find("{", position)
        if start < 0:
            break
        try:
            sample, position = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            following = _NEXT.search(text, start + 1)
            if following is None:
                break
            position = following.start()
            continue
        frequency = sample.get("frequency") if isinstance(sample, dict) else None
        actual = frequency.get("actual") if isinstance(frequency, dict) else None
        if isinstance(actual, int | float) and not isinstance(actual, bool) and 1 <= actual < 1 << 20:
            found = round(actual)
    return found
