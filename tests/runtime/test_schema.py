"""What parsing a body costs."""

import gc

import pytest

from vllm_probe.runtime.server.schema import ApiError, EmbeddingRequest, parse_request


def test_parsing_a_million_lists_collects_no_garbage() -> None:
    phases: list[str] = []
    watch = lambda phase, _: phases.append(phase)  # noqa: E731
    gc.callbacks.append(watch)
    try:
        with pytest.raises(ApiError, match="1000001 inputs"):
            parse_request(b'{"input": [' + b"[]," * 1_000_000 + b"[]]}", EmbeddingRequest)
    finally:
        gc.callbacks.remove(watch)
    assert len(phases) < 100
    assert gc.isenabled()
