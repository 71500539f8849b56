"""The HTTP interface over ASGI: the contract of OpenAI's embeddings, models, health, documents and metrics."""

import base64
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from fastapi import FastAPI

from tests.runtime.asgi import assert_error, body_schema, call, metric, post
from tests.runtime.support import load_engine
from vllm_probe.core.version import __version__
from vllm_probe.runtime.engine import Engine
from vllm_probe.runtime.server.app import ServerOptions, create_app


def test_a_response_has_the_fields_that_clients_read(app: FastAPI) -> None:
    response = post(app, {"input": ["the river", "rain falls on stone"], "model": "tiny"})
    body = response.json()
    assert response.headers["content-type"] == "application/json"
    assert "connection" not in response.headers
    assert (body["object"], body["model"]) == ("list", "tiny")
    assert body["id"].startswith("embd-")
    assert [(item["object"], item["index"]) for item in body["data"]] == [("embedding", 0), ("embedding", 1)]
    assert body["usage"] == {"prompt_tokens": 10, "total_tokens": 10}
    assert "x-truncated-inputs" not in response.headers


def test_the_vectors_are_those_of_the_engine(app: FastAPI, tiny_engine: Engine) -> None:
    texts = ["the river", "rain falls on stone"]
    found = [item["embedding"] for item in post(app, {"input": texts}).json()["data"]]
    assert found == tiny_engine.embed(texts).vectors.tolist()


def test_base64_is_little_endian_float32(app: FastAPI) -> None:
    (floats,) = post(app, {"input": "the river"}).json()["data"]
    (packed,) = post(app, {"input": "the river", "encoding_format": "base64"}).json()["data"]
    assert list(struct.unpack("<32f", base64.b64decode(packed["embedding"]))) == floats["embedding"]


@pytest.mark.parametrize(
    ("dtype", "code", "torch_dtype"),
    [("float32", "f", torch.float32), ("float16", "e", torch.float16), ("bfloat16", "H", torch.bfloat16)],
)
@pytest.mark.parametrize(("endianness", "mark"), [("little", "<"), ("big", ">"), ("native", "="), (None, "<")])
def test_base64_comes_in_the_number_format_and_byte_order_that_is_asked_for(
    app: FastAPI, dtype: str, code: str, torch_dtype: torch.dtype, endianness: str | None, mark: str
) -> None:
    asked = {
        "input": ["the river", "rain"],
        "encoding_format": "base64",
        "embed_dtype": dtype,
        "endianness": endianness,
    }
    wanted = [item["embedding"] for item in post(app, {"input": ["the river", "rain"]}).json()["data"]]
    for packed, row in zip(post(app, asked).json()["data"], torch.tensor(wanted).to(torch_dtype), strict=True):
        found = struct.unpack(f"{mark}32{code}", base64.b64decode(packed["embedding"]))
        if dtype == "bfloat16":
            row = row.view(torch.uint16)  # noqa: PLW2901 - the bits are compared
        assert list(found) == row.tolist()


def test_a_null_means_the_default(app: FastAPI) -> None:
    names = ("encoding_format", "embed_dtype", "endianness", "normalize", "use_activation", "add_special_tokens")
    asked = dict.fromkeys((*names, "messages", "dimensions", "user"))
    assert post(app, {"input": "a"} | asked).json()["data"] == post(app, {"input": "a"}).json()["data"]


@pytest.mark.parametrize("name", ["normalize", "use_activation"])
def test_vectors_are_raw_where_that_is_asked_for(app: FastAPI, name: str) -> None:
    unit = torch.tensor(post(app, {"input": "the river", name: True}).json()["data"][0]["embedding"])
    raw = torch.tensor(post(app, {"input": "the river", name: False}).json()["data"][0]["embedding"])
    assert raw.norm() > 1.5
    assert torch.allclose(raw / raw.norm(), unit, atol=1e-6)
    assert post(app, {"input": "the river"}).json()["data"][0]["embedding"] == unit.tolist()


def test_texts_and_token_ids_go_without_special_tokens_where_that_is_asked_for(app: FastAPI) -> None:
    plain = post(app, {"input": "the river", "add_special_tokens": False}).json()
    assert plain["usage"]["prompt_tokens"] == 2
    assert plain["data"] == post(app, {"input": [8, 5]}).json()["data"]
    asked = {"input": "a " * 80, "add_special_tokens": False, "truncate_prompt_tokens": 10}
    assert post(app, asked).json()["usage"]["prompt_tokens"] == 10
    assert_error(post(app, {"input": " ", "add_special_tokens": False}), 400, "no tokens", "add_special_tokens")


@pytest.mark.parametrize("path", ["/health", "/live", "/ping"])
def test_probes_may_ask_for_the_head_only(app: FastAPI, path: str) -> None:
    assert call(app, "HEAD", path).status_code == 200
    assert "head" not in call(app, "GET", "/openapi.json").json()["paths"].get(path, {})


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ("the river", 1),
        (["the river"], 1),
        ([1, 8, 5, 2], 1),
        ([[1, 8, 5, 2]], 1),
        ([[4], [5]], 2),
        ([4.0, 5], 1),
        (["a"] * 2048, 2048),
    ],
)
def test_every_form_of_input_is_taken(app: FastAPI, given: Any, count: int) -> None:
    assert len(post(app, {"input": given}).json()["data"]) == count


def test_numbers_may_be_written_with_a_point(app: FastAPI) -> None:
    body = {"input": [4.0, 5.0], "dimensions": 32.0, "truncate_prompt_tokens": 3.0}
    assert post(app, body).json()["usage"]["prompt_tokens"] == 2


def test_unknown_fields_and_user_are_ignored(app: FastAPI) -> None:
    assert post(app, {"input": "a", "user": "u", "priority": 3, "nonsense": {}}).status_code == 200


def test_an_unknown_model_is_404_and_an_alias_is_not(app: FastAPI) -> None:
    assert_error(post(app, {"input": "a", "model": "gpt"}), 404, "`gpt` does not exist", "model")
    assert post(app, {"input": "a", "model": "alias"}).json()["model"] == "tiny"


def test_without_served_names_the_model_has_its_own_and_that_of_the_config(tiny: Path) -> None:
    engine = load_engine(tiny, model="./there")
    app = create_app(engine, ServerOptions())
    assert [item["id"] for item in call(app, "GET", "/v1/models").json()["data"]] == [engine.spec.name, "./there"]
    assert post(app, {"input": "a", "model": "./there"}).json()["model"] == engine.spec.name
    engine.close()


def test_unknown_routes_and_methods_give_error_objects(app: FastAPI) -> None:
    for method, path in (("GET", "/"), ("POST", "/v1/chat/completions"), ("POST", "/v1/completions")):
        serves = f"There is no {method} {path} here. tiny is an embedding model: POST /v1/embeddings"
        assert_error(call(app, method, path), 404, serves)
    response = call(app, "GET", "/v1/embeddings")
    assert_error(response, 405, "Method Not Allowed")
    assert response.headers["allow"] == "POST"


def test_truncation_is_reported_and_counted(app: FastAPI) -> None:
    before = metric(app, "probe:truncated_inputs_total")
    response = post(app, {"input": ["a " * 100, "a", "a " * 63], "truncate_prompt_tokens": -1})
    assert response.headers["x-truncated-inputs"] == "2"
    assert response.json()["usage"]["prompt_tokens"] == 64 + 3 + 64
    assert metric(app, "probe:truncated_inputs_total") == before + 2


def test_models_lists_every_name_with_its_limit(app: FastAPI) -> None:
    listed = call(app, "GET", "/v1/models").json()["data"]
    assert [(item["id"], item["object"], item["max_model_len"]) for item in listed] == [
        ("tiny", "model", 64),
        ("alias", "model", 64),
    ]
    assert all(item["owned_by"] == "vllm-probe" and item["created"] > 1_700_000_000 for item in listed)


@pytest.mark.parametrize("name", ["tiny", "/models/a b", "org/name"])
def test_a_model_is_described_alone_by_any_of_its_names(tiny_engine: Engine, name: str) -> None:
    app = create_app(tiny_engine, ServerOptions(served_model_names=("tiny", "/models/a b", "org/name")))
    listed = call(app, "GET", "/v1/models").json()["data"]
    assert call(app, "GET", f"/v1/models/{name}").json() in listed
    assert call(app, "GET", f"/v1/models/{name}").json()["id"] == name
    assert_error(call(app, "GET", f"/v1/models/{name}x"), 404, f"`{name}x` does not exist", "model")


def test_health_live_and_version(app: FastAPI) -> None:
    assert call(app, "GET", "/health").status_code == 200
    assert [call(app, method, "/ping").status_code for method in ("GET", "POST")] == [200, 200]
    assert call(app, "GET", "/live").status_code == 200
    assert call(app, "GET", "/load").json() == {"server_load": 0}
    assert call(app, "GET", "/version").json() == {"version": __version__}


def test_the_openapi_document_has_the_limits_of_the_model(app: FastAPI) -> None:
    fields = body_schema(app, "/v1/embeddings")["properties"]
    assert fields["model"]["anyOf"][0]["enum"] == ["tiny", "alias"]
    assert fields["input"]["anyOf"][2]["items"] == {"type": "integer", "minimum": 0, "maximum": 15}
    assert fields["dimensions"]["anyOf"][0] == {"type": "integer", "minimum": 32, "maximum": 32}
    assert fields["truncate_prompt_tokens"]["anyOf"][0]["anyOf"] == [
        {"const": -1},
        {"type": "integer", "minimum": 3, "maximum": 64},
    ]
    assert fields["prompt_name"]["anyOf"] == [{"type": "null"}]


def test_the_openapi_document_names_every_error(app: FastAPI) -> None:
    paths = call(app, "GET", "/openapi.json").json()["paths"]
    assert set(paths["/v1/embeddings"]["post"]["responses"]) == {"200", "400", "404", "408", "413", "429", "500", "503"}
    assert set(paths["/v1/models/{name}"]["get"]["responses"]) == {"200", "404"}
    assert set(paths["/health"]["get"]["responses"]) == {"200", "503"}


def test_metrics_have_the_names_that_dashboards_read(app: FastAPI) -> None:
    before = {name: metric(app, name) for name in ("vllm:prompt_tokens_total", "vllm:request_success_total")}
    post(app, {"input": [[4, 5, 6], [7]]})
    text = call(app, "GET", "/metrics").text
    assert metric(app, "vllm:prompt_tokens_total") == before["vllm:prompt_tokens_total"] + 4
    assert metric(app, "vllm:request_success_total") == before["vllm:request_success_total"] + 1
    assert 'vllm:num_requests_running{engine="0",model_name="tiny"} 0.0' in text
    for name in (
        "vllm:num_requests_waiting",
        "vllm:request_prompt_tokens_bucket",
        "vllm:iteration_tokens_total_bucket",
        "vllm:e2e_request_latency_seconds_bucket",
        "vllm:request_queue_time_seconds_bucket",
        "vllm:request_inference_time_seconds_bucket",
        "probe:tokenize_seconds_bucket",
        "probe:waiting_tokens",
    ):
        assert f"\n{name}{{" in text
