"""The HTTP interface over ASGI: the contract of OpenAI's embeddings, models, health, documents and metrics."""

import base64
import struct
from pathlib import Path
from typing import Any

import pytest
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
    assert set(paths["/v1/embeddings"]["post"]["responses"]) == {"200", "400", "404", "413", "429", "500", "503"}
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
