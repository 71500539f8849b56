"""Words that nvidia-smi writes in place of values, and what it says when it fails."""

import re

from vllm_probe.vendors.nvidia.codes import LOST, MISMATCH, NOT_SUPPORTED, RESET_REQUIRED

_GONE = {"gpu is lost": LOST, "gpu requires reset": RESET_REQUIRED, "gpu requires restart": RESET_REQUIRED}
_ERRORS = {
    "version mismatch": MISMATCH,
    "couldn't communicate": 9,
    "driver not loaded": 9,
    "insufficient permissions": 4,
    "insufficient external power": 8,
    "insufficiently powered": 8,
    "access blocked": 17,
    "has blocked the request": 17,
    **_GONE,
    "timeout": 10,
    "not supported": NOT_SUPPORTED,
    "unknown error": 999,
}
"""Part of a text, in small letters, to NVML's status (nvmlErrorString, and nvidia-smi's own words for some)."""
_UNKNOWN = re.compile(
    r"|None|N/A|ERR!|\[.*|Unknown.*|Requested func.*|Insufficient .*|(?:Not|Function Not) (?:Found|Supported)|Timeout"
    r"|GPU (?:is lost|requires|access blocked).*|No data|Uninitialized|Driver Not Loaded|Invalid Argument|In use",
    re.IGNORECASE | re.DOTALL,
)
_ADDRESS = r"0{0,4}([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})\.([0-7])"


def is_known(text: str) -> bool:
    """Whether the text of a field is a value: nvidia-smi writes an error's words in its place."""
    return not _UNKNOWN.fullmatch(text.strip())


def gone(*fields: str) -> int | None:
    """NVML's status where one of the texts says that the GPU itself is lost or has to be reset."""
    return next((_GONE[text] for field in fields if (text := field.strip().lower()) in _GONE), None)


def parse_error(text: str) -> int | None:
    """NVML's status behind what nvidia-smi says when it fails, null where it does not say it."""
    said = text.lower()
    if "failed" not in said and "unable to" not in said and "error" not in said:
        return None
    return next((status for words, status in _ERRORS.items() if words in said), None)


def parse_failure(text: str) -> tuple[int | None, dict[str, int]]:
    """NVML's status of the machine, null where none is said, and by address that of the devices that it is said of.

    `Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.` is of the one device.
    """
    of_machine, of_devices = list[str](), dict[str, int]()
    for line in text.splitlines():
        named = re.search(rf"GPU ?(?:\d{{1,3}}: ?)?{_ADDRESS}", line, re.IGNORECASE)
        if named is None:
            of_machine.append(line)
        elif (status := parse_error(line)) is not None:
            of_devices[_joined(named)] = status
    return parse_error("\n".join(of_machine)), of_devices


def parse_address(text: str) -> str | None:
    """`0000:06:00.0` of a bus id with a domain of 4 or 8 digits."""
    match = re.fullmatch(_ADDRESS, text.strip())
    return _joined(match) if match else None


def _joined(match: re.Match[str]) -> str:
    return f"{match[1]}:{match[2]}:{match[3]}.{match[4]}".lower()
