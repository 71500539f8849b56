"""One name for each processor, however its system spells it."""

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""What `platform.machine()` gives under Windows, FreeBSD and macOS, to what it gives under Linux."""


def machine_name(machine: str) -> str:
    """`x86_64` of `AMD64`."""
    return _MACHINES.get(machine.lower(), machine.lower())
