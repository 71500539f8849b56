"""What parsing a body costs, and what cannot be written."""

import gc

import pytest
import torch

from vllm_probe.runtime.executor.result import Embeddings, to_bytes
from vllm_probe.runtime.server.schema import ApiError, EmbeddingRequest, parse_request, render_embeddings


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


def test_a_value_beyond_float16_is_refused() -> None:
    data = to_bytes(torch.full((32,), 1e5))
    vast = Embeddings(data=data, dimensions=32, prompt_tokens=3, num_truncated=0, queue_s=0.0, compute_s=0.0)
    asked = EmbeddingRequest(input=["a"], encoding_format="base64", embed_dtype="float16")
    with pytest.raises(ApiError, match="a value is larger than float16 goes") as refused:
        render_embeddings(vast, "tiny", asked)
    assert (refused.value.status, refused.value.param) == (400, "embed_dtype")
    assert render_embeddings(vast, "tiny", asked.model_copy(update={"embed_dtype": "bfloat16"})).status_code == 200
