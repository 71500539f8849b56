"""Qwen3 as an embedding model: vectors against transformers, the end token, cut vectors, prompts."""

import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.runtime.asgi import call
from tests.runtime.qwen3 import EOS, MAX_LEN, PROMPTS, Reference, write_qwen3, write_tokenizer
from tests.runtime.support import CPU, load_engine, make_config
from vllm_probe.core.errors import UnsupportedModel
from vllm_probe.host.local import LocalHost
from vllm_probe.models import catalogue
from vllm_probe.models.hf import read_folder
from vllm_probe.runtime.engine import Engine
from vllm_probe.runtime.sched.request import RequestError
from vllm_probe.runtime.server.app import ServerOptions, create_app
from vllm_probe.vendors.cpu.adapter import CpuAdapter

TEXTS = (
    "What is the capital of China?",
    "The capital of China is Beijing.",
    "Gravity is a force that attracts two bodies towards each other. It gives weight to physical objects.",
    "Der schnelle braune Fuchs springt über den faulen Hund, 速い茶色の狐",
    "x",
    "def forward(self, ids):\n    return self.model(ids)[:, -1]  # 🙂 <|im_end|>",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("qwen3")
    write_tokenizer(path)
    yield write_qwen3(path)
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def reference(folder: Path) -> Reference:
    return Reference(folder)


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def engine(request: pytest.FixtureRequest, folder: Path) -> Iterator[Engine]:
    engine = load_engine(folder, dtype=request.param)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def exact(folder: Path) -> Iterator[Engine]:
    engine = load_engine(folder)
    yield engine
    engine.close()


def ids(length: int, seed: int = 0) -> list[int]:
    """So many token ids, the last one the end."""
    return [*random.Random(length + 1000 * seed).choices(range(1000, 100_000), k=length - 1), EOS]


def assert_equal(found: torch.Tensor, wanted: torch.Tensor, dtype: str) -> None:
    """The bars: 2e-5 absolute on unit vectors in float32, cosine 0.9995 in bfloat16."""
    assert found.shape == wanted.shape
    if dtype == "float32":
        assert (found - wanted).abs().max() <= 2e-5
    else:
        assert (found * wanted).sum(1).min() >= 0.9995


# Vectors.


def test_vectors_of_texts_equal_transformers(engine: Engine, reference: Reference) -> None:
    inputs = [reference.ids(text) for text in TEXTS]
    assert {item[-1] for item in inputs} == {EOS}
    found = engine.embed(TEXTS)
    assert found.prompt_tokens == sum(map(len, inputs))
    assert_equal(found.vectors, reference.vectors(inputs), engine.config.dtype)


def test_vectors_equal_transformers_at_many_lengths(engine: Engine, reference: Reference) -> None:
    inputs = [ids(length) for length in (1, 2, 3, 17, 64, 255, 256, 257, 400, MAX_LEN - 1, MAX_LEN)]
    assert_equal(engine.embed(inputs).vectors, reference.vectors(inputs), engine.config.dtype)


def test_a_short_text_after_a_long_one_and_before_it(engine: Engine, reference: Reference) -> None:
    long, short = ids(MAX_LEN), ids(3)
    wanted = reference.vectors([long, short])
    for inputs, expected in (([long, short], wanted), ([short, long], wanted.flip(0))):
        assert_equal(engine.embed(inputs).vectors, expected, engine.config.dtype)
    engine.embed([long])
    assert_equal(engine.embed([short]).vectors, wanted[1:], engine.config.dtype)


@pytest.mark.parametrize("size", [2, 3, 8, 32])
@pytest.mark.parametrize("lengths", ["equal", "unequal"])
def test_a_text_has_the_same_vector_in_any_batch(engine: Engine, size: int, lengths: str) -> None:
    inputs = [ids(40 if lengths == "equal" else 3 + 15 * index, seed=index) for index in range(size)]
    together = engine.embed(inputs).vectors
    alone = torch.cat([engine.embed([item]).vectors for item in inputs])
    if engine.config.dtype == "float32":
        assert (together - alone).abs().max() <= 1e-6
    else:
        assert (together * alone).sum(1).min() >= 0.9999


def test_mean_pooling_equals_transformers(tmp_path: Path) -> None:
    folder = write_qwen3(tmp_path / "mean", vocab_size=2000)
    engine = load_engine(folder, pooling={"type": "mean", "normalize": False})
    item = list(range(300, 360))
    states = Reference(folder)._model(input_ids=torch.tensor([item])).last_hidden_state[0]
    assert (engine.embed([item]).vectors[0] - states.mean(0)).abs().max() <= 2e-5
    engine.close()


@pytest.mark.parametrize("kind", ["Qwen3ForCausalLM", "Qwen3Model"])
def test_names_with_and_without_their_prefix_are_read(kind: str, tmp_path: Path) -> None:
    folder = write_qwen3(tmp_path / kind, kind=kind, vocab_size=2000, tie_word_embeddings=True)
    names = load_file(folder / "model.safetensors")
    assert all(name.startswith("model.") for name in names) == (kind == "Qwen3ForCausalLM")
    engine, inputs = load_engine(folder), [list(range(300, 360)), [7]]
    assert_equal(engine.embed(inputs).vectors, Reference(folder).vectors(inputs), "float32")
    engine.close()


@pytest.mark.parametrize("name", ["layers.1.self_attn.k_norm.weight", "norm.weight", "layers.3.mlp.up_proj.weight"])
def test_every_weight_counts(name: str, tmp_path: Path) -> None:
    folder = write_qwen3(tmp_path / "model", vocab_size=2000)
    before = load_engine(folder)
    whole = before.embed([[5, 6, 7]]).vectors
    before.close()
    tensors = load_file(folder / "model.safetensors")
    tensors[name] = tensors[name] * torch.linspace(0.5, 2, tensors[name].shape[-1])
    save_file(tensors, folder / "model.safetensors")
    after = load_engine(folder)
    assert_equal(after.embed([[5, 6, 7]]).vectors, Reference(folder).vectors([[5, 6, 7]]), "float32")
    assert (after.embed([[5, 6, 7]]).vectors - whole).abs().max() > 1e-4
    after.close()


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6}}, "yarn rotary positions"),
        ({"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 0}, "windows"),
        ({"attention_bias": True}, "biases"),
        ({"hidden_act": "gelu"}, "the activation gelu"),
    ],
)
def test_a_variant_that_is_not_computed_is_refused(shape: dict[str, Any], reason: str, tmp_path: Path) -> None:
    folder = write_qwen3(tmp_path / "model", vocab_size=2000, **shape)
    with pytest.raises(UnsupportedModel, match=reason):
        load_engine(folder)


# The end token.


def test_every_prompt_ends_with_the_end_token(exact: Engine) -> None:
    long = "the river is cold and the bank keeps money while rain falls on stone " * 100
    for side in ("left", "right"):
        prompts = exact.prepare([long, "short"], truncate_prompt_tokens=-1, truncation_side=side)
        assert [len(item) for item in prompts.token_ids] == [MAX_LEN, 2]
        assert [item[-1] for item in prompts.token_ids] == [EOS, EOS]
        assert prompts.num_truncated == 1


@pytest.mark.parametrize("side", ["left", "right", None])
@pytest.mark.parametrize("length", [1, MAX_LEN - 2, MAX_LEN - 1, MAX_LEN, MAX_LEN + 1, 2 * MAX_LEN])
@pytest.mark.parametrize("ends", [True, False])
def test_token_ids_end_with_the_end_token(exact: Engine, length: int, side: Any, *, ends: bool) -> None:
    body = list(range(2000, 2000 + length - ends))
    prompts = exact.prepare([body + [EOS] * ends], truncate_prompt_tokens=-1, truncation_side=side)
    kept = len(body) if len(body) < MAX_LEN else MAX_LEN - 1
    wanted = body[len(body) - kept :] if side == "left" else body[:kept]
    assert list(prompts.token_ids[0]) == [*wanted, EOS]
    assert prompts.num_truncated == (kept < len(body))


def test_a_text_is_cut_at_the_side_that_is_asked_for(exact: Engine, reference: Reference) -> None:
    text = TEXTS[2]
    whole = reference.ids(text)
    left, right = (
        exact.prepare([text], truncate_prompt_tokens=8, truncation_side=side).token_ids[0] for side in ("left", "right")
    )
    assert list(left) == whole[-8:]
    assert list(right) == [*whole[:7], EOS]


def test_the_end_token_that_is_put_counts_against_the_limit(exact: Engine) -> None:
    assert exact.embed([ids(MAX_LEN)]).prompt_tokens == MAX_LEN
    with pytest.raises(
        RequestError, match=f"maximum context length is {MAX_LEN} tokens, but input 0 has {MAX_LEN + 1}"
    ):
        exact.embed([[5] * MAX_LEN])


def test_token_ids_give_the_vector_of_their_text_with_or_without_the_end(exact: Engine, reference: Reference) -> None:
    wanted, whole = exact.embed([TEXTS[0]]).vectors, reference.ids(TEXTS[0])
    for item in (whole, whole[:-1]):
        assert torch.equal(exact.embed([item]).vectors, wanted)


# Dimensions and prompts.


@pytest.mark.parametrize("dimensions", [1, 32, 255, 256])
def test_dimensions_cut_and_scale_again(engine: Engine, dimensions: int) -> None:
    whole = engine.embed(TEXTS).vectors
    found = engine.embed(TEXTS, dimensions=dimensions)
    first = whole[:, :dimensions]
    assert (found.dimensions, found.vectors.shape) == (dimensions, (len(TEXTS), dimensions))
    assert (found.vectors - first / first.norm(dim=1, keepdim=True)).abs().max() <= 1e-6


def test_dimensions_without_normalisation_only_cut(folder: Path) -> None:
    raw = load_engine(folder, pooling={"type": "last", "normalize": False})
    whole = raw.embed(TEXTS[0]).vectors
    assert whole.norm() > 1.5
    assert torch.equal(raw.embed(TEXTS[0], dimensions=9).vectors, whole[:, :9])
    raw.close()


def test_a_prompt_of_the_checkpoint_stands_before_the_text(exact: Engine) -> None:
    wanted = exact.embed([PROMPTS["query"] + text for text in TEXTS]).vectors
    for name in ("query", "search_query"):
        assert torch.equal(exact.embed(TEXTS, prompt_name=name).vectors, wanted)
    assert torch.equal(exact.embed(TEXTS, prompt_name="document").vectors, exact.embed(TEXTS).vectors)
    assert torch.equal(exact.embed([[5, 6]], prompt_name="document").vectors, exact.embed([[5, 6]]).vectors)


def test_the_default_prompt_of_the_checkpoint_stands_before_texts_without_another(
    exact: Engine, folder: Path, tmp_path: Path
) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).symlink_to(file)
    path = tmp_path / "config_sentence_transformers.json"
    path.unlink()
    path.write_text(json.dumps({"prompts": PROMPTS, "default_prompt_name": "query"}))
    engine = load_engine(tmp_path)
    assert torch.equal(engine.embed(TEXTS).vectors, exact.embed(TEXTS, prompt_name="query").vectors)
    assert torch.equal(engine.embed(TEXTS, prompt_name="document").vectors, exact.embed(TEXTS).vectors)
    assert torch.equal(engine.embed([[5, 6]]).vectors, exact.embed([[5, 6]]).vectors)
    engine.close()


@pytest.mark.parametrize(
    ("inputs", "name", "message"),
    [
        (["a"], "clustering", "no prompt 'clustering': it has document, query"),
        ([[5, 6]], "query", "input 0 is token ids"),
    ],
)
def test_a_prompt_that_cannot_stand_there_is_refused(exact: Engine, inputs: list[Any], name: str, message: str) -> None:
    with pytest.raises(RequestError, match=message) as refused:
        exact.embed(inputs, prompt_name=name)
    assert refused.value.param == "prompt_name"


# Over HTTP.


def post(engine: Engine, **body: Any) -> Any:
    return call(create_app(engine, ServerOptions()), "POST", "/v1/embeddings", json=body)


def test_the_request_chooses_dimensions_prompt_and_side(exact: Engine) -> None:
    for body, options in (
        ({"dimensions": 7}, {"dimensions": 7}),
        ({"input_type": "search_query"}, {"prompt_name": "query"}),
        ({"prompt_name": "query", "input_type": "document"}, {"prompt_name": "query"}),
        (
            {"truncate_prompt_tokens": 4, "truncation_side": "left"},
            {"truncate_prompt_tokens": 4, "truncation_side": "left"},
        ),
    ):
        answer = post(exact, input=TEXTS[1], **body)
        wanted = exact.embed([TEXTS[1]], **options).vectors[0]
        assert torch.allclose(torch.tensor(answer.json()["data"][0]["embedding"]), wanted, atol=1e-6)
        assert answer.headers.get("x-truncated-inputs") == ("1" if "truncation_side" in body else None)
        assert "x-dummy-weights" not in answer.headers


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"dimensions": 0}, "dimensions"),
        ({"dimensions": 257}, "dimensions"),
        ({"input_type": "nothing"}, "input_type"),
        ({"prompt_name": "nothing", "input_type": "query"}, "prompt_name"),
        ({"truncation_side": "middle"}, "truncation_side"),
        ({"input": [[5]] * 2049}, "input"),
        ({"input": [[5] * 300] * 1000}, "input"),  # with their end tokens more than 300,000
    ],
)
def test_what_the_model_cannot_do_is_a_bad_request(exact: Engine, body: dict[str, Any], param: str) -> None:
    answer = post(exact, **{"input": "a", **body})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_without_special_tokens_nothing_is_put_behind(exact: Engine) -> None:
    plain, ended = (post(exact, input=[[5, 6]], add_special_tokens=flag).json() for flag in (False, True))
    assert [answer["usage"]["prompt_tokens"] for answer in (plain, ended)] == [2, 3]
    text = post(exact, input=TEXTS[1], add_special_tokens=False).json()["usage"]["prompt_tokens"]
    assert text == post(exact, input=TEXTS[1]).json()["usage"]["prompt_tokens"] - 1


def test_six_thousand_inputs_in_three_requests(exact: Engine) -> None:
    for seed in range(3):
        inputs = [ids(2 + index % 3, seed=seed * 2000 + index) for index in range(2000)]
        answer = post(exact, input=inputs, dimensions=4)
        assert (answer.status_code, len(answer.json()["data"])) == (200, 2000)
        assert answer.json()["usage"]["prompt_tokens"] == sum(map(len, inputs))


# Dummy weights.


def dummy_engine(**changes: Any) -> Engine:
    """The 0.6B entry of the catalogue with two layers and few words."""
    spec = replace(catalogue.load("Qwen3-Embedding-0.6B"), num_layers=2, vocab_size=3000, max_model_len=64)
    adapter = CpuAdapter(LocalHost())
    adapter.set_device(CPU)
    return Engine.load(make_config(spec, **changes), spec, adapter, load_format="dummy")


def test_dummy_weights_give_the_same_unit_vectors_in_every_run_and_say_so(caplog: pytest.LogCaptureFixture) -> None:
    first, second = dummy_engine(dtype="bfloat16"), dummy_engine(dtype="bfloat16")
    assert "dummy weights" in caplog.text
    found = first.embed([[5, 6, 7], [8]], dimensions=1024).vectors
    assert torch.equal(found, second.embed([[5, 6, 7], [8]]).vectors)
    assert torch.allclose(found.norm(dim=1), torch.ones(2))
    assert (found[0] - found[1]).abs().max() > 0.01
    app = create_app(first, ServerOptions(api_key="secret"))
    bearer: dict[str, str | bytes] = {"authorization": "Bearer secret"}
    text = call(app, "POST", "/v1/embeddings", json={"input": "hello"}, headers=bearer)
    assert text.status_code == 400
    assert "no tokenizer.json here: send token ids" in text.json()["error"]["message"]
    refused, healthy = call(app, "GET", "/v1/models"), call(app, "GET", "/health")
    assert (refused.status_code, healthy.status_code) == (401, 200)
    assert [answer.headers["x-dummy-weights"] for answer in (text, refused, healthy)] == ["true"] * 3
    first.close()
    second.close()


def test_dummy_weights_take_text_where_the_folder_has_a_tokenizer(folder: Path, tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json", "modules.json", "1_Pooling", "config_sentence_transformers.json"):
        (tmp_path / name).symlink_to(folder / name)
    spec = read_folder(tmp_path)
    assert spec.weights_path is None
    adapter = CpuAdapter(LocalHost())
    adapter.set_device(CPU)
    engine = Engine.load(make_config(spec), spec, adapter, load_format="dummy")
    assert engine.prepare(["hello"]).token_ids[0][-1] == EOS
    assert engine.embed(["hello"]).vectors.isfinite().all()
    engine.close()


# Full size.


@pytest.mark.slow
def test_the_full_shape_equals_transformers_on_six_texts(tmp_path: Path) -> None:
    spec = catalogue.load("Qwen3-Embedding-0.6B")
    write_tokenizer(tmp_path)
    write_qwen3(
        tmp_path,
        torch.bfloat16,
        hidden_size=spec.hidden_size,
        num_hidden_layers=spec.num_layers,
        num_attention_heads=spec.num_heads,
        num_key_value_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        intermediate_size=spec.intermediate_size,
        max_position_embeddings=spec.max_model_len,
    )
    reference = Reference(tmp_path)
    wanted = reference.vectors([reference.ids(text) for text in TEXTS])
    del reference
    for dtype in ("float32", "bfloat16"):
        engine = load_engine(tmp_path, dtype=dtype, max_model_len=MAX_LEN)
        found = engine.embed(TEXTS).vectors
        engine.close()
        assert_equal(found, wanted, dtype)
        centred = [vectors - vectors.mean(0) for vectors in (found, wanted)]
        assert torch.cosine_similarity(*centred).min() >= 0.999  # random vectors are alike, differences are not
