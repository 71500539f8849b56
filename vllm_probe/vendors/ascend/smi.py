"""Layer 2: npu-smi, where DCMI did not answer, and for what it lacks."""

import re
from typing import Any, TypeAlias

from vllm_probe.core.system import CommandResult, Host
from vllm_probe.vendors.ascend.facts import WANTED
from vllm_probe.vendors.ascend.smi_lists import parse_blocks, parse_list, parse_map
from vllm_probe.vendors.ascend.smi_table import parse_chip_errors, parse_error, parse_table

Record: TypeAlias = dict[str, Any]

SOURCE = "npu-smi"
_PROGRAMS = (SOURCE, "/usr/local/bin/npu-smi", "/usr/local/sbin/npu-smi")
TIMEOUT_S = 3.0
_MOST_CARDS = 64
_LINE = 120  # characters of what it says that a sentence takes
_FAILURE = re.compile(r"\b(error|fail|denied|cannot|can't|unable|not found|no such)", re.IGNORECASE)
_BLOCKS = ("usages", "board")
_BY_CARD = ("board", "usages", "memory", "common", "health", "product")


def read(host: Host) -> Record:
    """A report in the form of DCMI's; `status` is DCMI's where npu-smi fails with it, or `error` why it told nothing.

    The table tells nearly all; the map adds the numbers that CANN counts by. Where there is no table that can be read,
    each card that `-l` lists is asked by itself, and where the table lacks memory, the card concerned. An error of one
    chip stands in its record, as `status` where nothing else is told of it, and for what it lacks as `failed`.
    """
    asker = _Asker(host)
    text = asker.ask("info")
    if asker.error:
        return {"devices": [], "error": asker.error}
    devices, errors = parse_table(text)["devices"], parse_chip_errors(text)
    if not devices:
        status = parse_error(text)
        if status is not None:
            return {"devices": [], "status": status}
        devices = _by_card(asker)
    if not devices and not errors and (said := asker.failure(text)):
        return {"devices": [], "error": said}
    told = {(device["card"], device["chip"]) for device in devices}
    devices += [{"card": card, "chip": chip} for card, chip in errors if (card, chip) not in told]
    devices = _joined(devices, parse_map(asker.ask("info", "-m"))) if devices else []
    lacking = {device["card"] for device in devices if "memory" not in device}
    found = [block for card in sorted(lacking) for block in asker.blocks(card, _BLOCKS)]
    return {"devices": [_with_error(each, errors) for each in _joined(devices, found)]}


def _with_error(device: Record, errors: dict[tuple[int, int], int]) -> Record:
    status = errors.get((device["card"], device["chip"]))
    if status is None:
        return device
    if not {"health", "memory"}.intersection(device):
        return device | {"status": status}
    return device | {"failed": {name: status for name in (*WANTED, "memory_info") if name not in device}}


def _by_card(asker: "_Asker") -> list[Record]:
    listed = parse_list(asker.ask("info", "-l"))[:_MOST_CARDS]
    chips = [{"card": card, "chip": chip, "chips": count} for card, count in listed for chip in range(min(count, 16))]
    return _joined(chips, [block for card, _ in listed for block in asker.blocks(card, _BY_CARD)])


def _joined(devices: list[Record], more: list[Record]) -> list[Record]:
    """`devices` with what only `more` tells of the same chip."""
    extra: dict[tuple[int, int], Record] = {}
    for each in more:
        place = (each.get("card", -1), each.get("chip", 0))
        extra[place] = each | extra.get(place, {})
    return [{**extra.get((each["card"], each["chip"]), {}), **each} for each in devices]


class _Asker:
    """Runs npu-smi within one time limit for all that is asked; what comes too late is an empty text."""

    def __init__(self, host: Host) -> None:
        self._host, self._deadline = host, host.now() + TIMEOUT_S
        self.error: str | None = None
        self._failed = False

    def ask(self, *options: str) -> str:
        """What npu-smi prints with `options`, errors too."""
        left = self._deadline - self._host.now()
        if left <= 0:
            return ""
        ended = self._run(options, left)
        if ended.status == "timeout":
            self.error = f"npu-smi did not answer in {TIMEOUT_S:g} s"
        elif ended.status == "missing":
            self.error = "there is no npu-smi"
        self._failed = self._failed or bool(ended.returncode)
        return f"{ended.stdout}\n{ended.stderr}" if ended.status == "exited" else ""

    def failure(self, text: str) -> str | None:
        """What npu-smi says of its failure in `text`, null where it does not fail."""
        lines = [line.strip()[:_LINE] for line in text.splitlines() if line.strip() and line.strip().isprintable()]
        said = next(filter(_FAILURE.search, lines), lines[-1] if lines and self._failed else None)
        return f'npu-smi says "{said}"' if said else "npu-smi fails and says nothing" if self._failed else None

    def blocks(self, card: int, topics: tuple[str, ...]) -> list[Record]:
        """What `topics` tell of each chip of `card`."""
        found = [block for topic in topics for block in parse_blocks(self.ask("info", "-t", topic, "-i", str(card)))]
        return [{**block, "card": card} for block in found]

    def _run(self, options: tuple[str, ...], timeout_s: float) -> CommandResult:
        result = self._host.run((_PROGRAMS[0], *options), timeout_s)
        for path in _PROGRAMS[1:]:
            if result.status == "missing" and self._host.exists(path):
                result = self._host.run((path, *options), timeout_s)
        return result
