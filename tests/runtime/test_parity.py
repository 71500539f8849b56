"""Vectors against sentence-transformers and transformers, alone and in batches."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runtime.support import WORDS, load_engine, write_checkpoint
from vllm_probe.runtime.engine import Engine

SENTENCES = (
    "The cat sits outside in the sun.",
    "A man is playing the guitar on a crowded street corner.",
    "Der schnelle braune Fuchs springt über den faulen Hund, 速い茶色の狐",
    "x",
    "   ",
    "[MASK] and [SEP] inside a text, \t tabs\nand 🙂 signs; naïve café",
    "supercalifragilisticexpialidocious" * 8,
)


def text_of(num_tokens: int, seed: int = 0) -> str:
    """A text of so many tokens, two of them special."""
    return " ".join(random.Random(seed + num_tokens).choices(WORDS, k=num_tokens - 2))


def expected(reference: Any, texts: Sequence[str]) -> torch.Tensor:
    vectors: torch.Tensor = reference.encode(list(texts), convert_to_tensor=True)
    return vectors


def assert_equal(found: torch.Tensor, wanted: torch.Tensor, dtype: str) -> None:
    """The bars: 1e-5 absolute in float32, cosine 0.9995 in bfloat16."""
    assert found.shape == wanted.shape
    if dtype == "float32":
        assert (found - wanted).abs().max() <= 1e-5
    else:
        assert (found * wanted).sum(1).min() >= 0.9995


@pytest.fixture(scope="session")
def every_length(reference: Any) -> tuple[list[str], torch.Tensor]:
    """A text of each length that MiniLM takes, with its vector."""
    texts = [text_of(length) for length in range(3, 257)]
    return texts, expected(reference, texts)


def test_vectors_equal_sentence_transformers_at_every_length(
    minilm: Engine, every_length: tuple[list[str], torch.Tensor]
) -> None:
    texts, wanted = every_length
    found = minilm.embed(texts)
    assert found.prompt_tokens == sum(range(3, 257))
    assert_equal(found.vectors, wanted, minilm.config.dtype)


def test_vectors_equal_sentence_transformers_on_odd_texts(minilm: Engine, reference: Any) -> None:
    assert_equal(minilm.embed(SENTENCES).vectors, expected(reference, SENTENCES), minilm.config.dtype)


@pytest.mark.parametrize("size", [1, 2, 3, 8, 32])
@pytest.mark.parametrize("lengths", ["equal", "unequal"])
def test_a_text_has_the_same_vector_in_any_batch(minilm: Engine, reference: Any, size: int, lengths: str) -> None:
    texts = [text_of(40 if lengths == "equal" else 3 + 7 * index, seed=index) for index in range(size)]
    found = minilm.embed(texts).vectors
    assert_equal(found, expected(reference, texts), minilm.config.dtype)
    alone = torch.cat([minilm.embed([text]).vectors for text in texts])
    if minilm.config.dtype == "float32":
        assert (found - alone).abs().max() <= 1e-6
    else:
        assert (found * alone).sum(1).min() >= 0.99999


def test_truncated_texts_equal_sentence_transformers(minilm: Engine, reference: Any) -> None:
    texts = [text_of(257), text_of(700), text_of(256), SENTENCES[1], text_of(9000)]  # the last has 38,000 characters
    found = minilm.embed(texts, truncate_prompt_tokens=-1)
    assert (found.num_truncated, found.prompt_tokens) == (3, 4 * 256 + 14)
    assert_equal(found.vectors, expected(reference, texts), minilm.config.dtype)


def test_a_smaller_cut_equals_sentence_transformers_with_that_limit(minilm: Engine, reference: Any) -> None:
    texts = [text_of(90), text_of(12)]
    found = minilm.embed(texts, truncate_prompt_tokens=16)
    reference.max_seq_length = 16
    try:
        wanted = expected(reference, texts)
    finally:
        reference.max_seq_length = 256
    assert found.num_truncated == 1
    assert_equal(found.vectors, wanted, minilm.config.dtype)


def test_token_ids_give_the_vector_of_their_text(minilm: Engine, reference: Any) -> None:
    ids = reference.tokenizer(SENTENCES[0])["input_ids"]
    assert torch.equal(minilm.embed([ids]).vectors, minilm.embed([SENTENCES[0]]).vectors)


def test_one_token_is_enough(minilm: Engine, reference: Any) -> None:
    with torch.inference_mode():
        states = reference[0].auto_model(input_ids=torch.tensor([[101]])).last_hidden_state[0]
    wanted = torch.nn.functional.normalize(states)
    assert_equal(minilm.embed([[101]]).vectors, wanted, minilm.config.dtype)


@pytest.mark.parametrize("kind", ["Bert", "Roberta", "XLMRoberta"])
@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_each_architecture_equals_transformers(kind: str, pooling: str, tmp_path: Path) -> None:
    import transformers

    folder = write_checkpoint(tmp_path, kind)
    engine = load_engine(folder, pooling={"type": pooling, "normalize": False})
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    first = 1 if kind == "Bert" else 0
    ids = [[first, 5, 6, 2], [first, *range(4, 16), 2], [first, *([7] * 62), 2], [9]]
    found = engine.embed(ids).vectors
    engine.close()
    ids[-1] += [2] if pooling == "last" else []  # the end of the tokenizer's template, put where it was absent
    for row, item in zip(found, ids, strict=True):
        with torch.inference_mode():
            states = model(input_ids=torch.tensor([item])).last_hidden_state[0]
        wanted = {"mean": states.mean(0), "cls": states[0], "last": states[-1]}[pooling]
        assert (row - wanted).abs().max() <= 1e-5
