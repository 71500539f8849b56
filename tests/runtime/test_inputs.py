"""What a request may hold, and what is refused of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runtime.support import CPU, FaultyAdapter, Load, make_config
from vllm_probe.models.hf import read_folder
from vllm_probe.runtime.engine import Engine
from vllm_probe.runtime.sched.request import RequestError


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        ([], {}, "input is empty"),
        ([""], {}, "input 0 is empty"),
        (["a", []], {}, "input 1 is empty"),
        ([[3, 16]], {}, "token ids outside 0 to 15"),
        ([[-1]], {}, "token ids outside 0 to 15"),
        (["\ud800"], {}, "not valid Unicode"),
        (["a " * 63], {}, "maximum context length is 64 tokens, but input 0 has 65"),
        (["a " * 2049], {}, "is 64 tokens, but input 0 has 4098 characters, where 4096 are looked at"),
        (["a"], {"truncate_prompt_tokens": 65}, "must be -1 or between 3 and 64, not 65"),
        (["a"], {"truncate_prompt_tokens": 0}, "must be -1 or between 3 and 64, not 0"),
        (["a"], {"dimensions": 16}, "32 dimensions"),
    ],
)
def test_a_request_that_means_nothing_is_refused(
    tiny_engine: Engine, inputs: list[Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        tiny_engine.embed(inputs, **options)


def test_a_request_of_too_many_tokens_is_refused_with_both_numbers(tiny_engine: Engine) -> None:
    assert tiny_engine.embed([[4] * 50] * 20, max_request_tokens=1000).prompt_tokens == 1000
    message = "the first 21 of 25 inputs have 1050 tokens, the limit of a request is 1000"
    for given in ([[4] * 50] * 25, ["a " * 48] * 25):
        with pytest.raises(RequestError, match=message):
            tiny_engine.prepare(given, max_request_tokens=1000)
    cut = tiny_engine.prepare(["a " * 48] * 25, truncate_prompt_tokens=40, max_request_tokens=1000)
    assert sum(map(len, cut.token_ids)) == 1000


@pytest.mark.parametrize("side", ["left", "right"])
def test_of_an_endless_text_only_a_part_is_tokenized(tiny_engine: Engine, side: Any) -> None:
    part, rest = "the river " * 410, "\ud800" * 1000  # what is tokenized must be Unicode, the rest is not looked at
    found = tiny_engine.embed(
        [rest + part if side == "left" else part + rest], truncate_prompt_tokens=-1, truncation_side=side
    )
    assert (found.num_truncated, found.prompt_tokens) == (1, 64)
    short = tiny_engine.embed(["the river " * 40], truncate_prompt_tokens=-1, truncation_side=side)
    assert torch.equal(found.vectors, short.vectors)


def test_an_endless_text_of_few_tokens_counts_as_cut(tiny_engine: Engine) -> None:
    found = tiny_engine.embed([" " * 10_000 + "river"], truncate_prompt_tokens=-1)
    assert (found.num_truncated, found.prompt_tokens) == (1, 2)


def test_the_first_token_ids_are_remarked_once(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    engine, _ = load()
    engine.embed("the river")
    assert "token ids" not in caplog.text
    for _ in range(2):
        engine.embed([[4, 5]])
    assert caplog.text.count("come from this model's tokenizer") == 1


def test_one_text_needs_no_list(tiny_engine: Engine) -> None:
    assert tiny_engine.embed("the river").vectors.shape == (1, 32)


def test_one_list_of_token_ids_needs_no_list(tiny_engine: Engine) -> None:
    one, listed = tiny_engine.embed([1, 8, 5, 2]), tiny_engine.embed([[1, 8, 5, 2]])
    assert (one.prompt_tokens, one.vectors.tolist()) == (4, listed.vectors.tolist())


def test_a_result_is_shown_without_its_bytes(tiny_engine: Engine) -> None:
    shown = repr(tiny_engine.embed("the river"))
    assert shown.startswith("Embeddings(dimensions=32, prompt_tokens=4, ")
    assert "data" not in shown


def test_its_own_width_may_be_asked_for(tiny_engine: Engine) -> None:
    assert tiny_engine.embed("the river", dimensions=32).dimensions == 32


def test_cut_token_ids_keep_their_last_special_token(tiny_engine: Engine) -> None:
    whole, cut = [1, 4, 5, 6, 7, 2], [1, 4, 5, 2]
    found = tiny_engine.embed([whole], truncate_prompt_tokens=4)
    assert found.num_truncated == 1
    assert torch.equal(found.vectors, tiny_engine.embed([cut]).vectors)


def test_cut_token_ids_without_special_tokens_lose_their_end(tiny_engine: Engine) -> None:
    found = tiny_engine.embed([[4, 5, 6, 7]], truncate_prompt_tokens=3)
    assert torch.equal(found.vectors, tiny_engine.embed([[4, 5, 6]]).vectors)


def test_without_a_tokenizer_only_token_ids_are_taken(
    tiny_engine: Engine, tiny: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "model.safetensors").write_bytes((tiny / "model.safetensors").read_bytes())
    spec = replace(read_folder(tiny), weights_path=str(tmp_path), folder=str(tmp_path))
    adapter = FaultyAdapter()
    adapter.set_device(CPU)
    engine = Engine.load(make_config(spec), spec, adapter)
    assert (tiny_engine.reads_text, engine.reads_text) == (True, False)
    assert "no tokenizer.json here: only token ids are taken" in caplog.text
    assert engine.embed([[4, 5]]).prompt_tokens == 2
    with pytest.raises(RequestError, match=r"no tokenizer\.json here: send token ids"):
        engine.embed("river")
    engine.close()
