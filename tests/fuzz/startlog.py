"""Fuzz target: bytes as a start-up log of vLLM."""

from tests.fuzz.runner import main
from vllm_probe.negotiate.startlog import parse_log


def one_input(content: bytes) -> None:
    """Reads `content`; every figure must stand in one of its lines."""
    text = content.decode(errors="replace")
    found = parse_log(text)
    assert all(1 <= figure.line <= len(text.splitlines()) for figure in found.figures.values())


if __name__ == "__main__":
    main(one_input)
