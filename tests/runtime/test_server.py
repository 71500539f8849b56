"""The HTTP interface over ASGI: the OpenAI contract, errors, auth, limits, metrics, disconnects."""

import asyncio
import base64
import json
import shutil
import struct
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from tests.runtime.asgi import Response, call, request
from tests.runtime.support import FaultyAdapter, ids, load_engine, wait_until
from vllm_probe.core.errors import BadUsage
from vllm_probe.core.version import __version__
from vllm_probe.runtime.engine import Engine
from vllm_probe.runtime.server.app import ServerOptions, create_app


@pytest.fixture
def app(tiny_engine: Engine) -> FastAPI:
    return create_app(tiny_engine, ServerOptions(served_model_names=("tiny", "alias")))


@pytest.fixture
def faulty(tiny: Path) -> Iterator[tuple[FastAPI, Engine, FaultyAdapter]]:
    adapter = FaultyAdapter()
    engine = load_engine(tiny, adapter, queue=100, max_num_batched_tokens=64)
    yield create_app(engine, ServerOptions()), engine, adapter
    engine.close()


def post(app: FastAPI, body: Any, **options: Any) -> Response:
    return call(app, "POST", "/v1/embeddings", json=body, **options)


def body_schema(app: FastAPI, path: str) -> Any:
    """What the OpenAPI document says about the body."""
    operation = call(app, "GET", "/openapi.json").json()["paths"][path]["post"]
    return operation["requestBody"]["content"]["application/json"]["schema"]


def assert_error(response: Response, status: int, message: str, param: str | None = None) -> None:
    """One error object, the same for every failure."""
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert message in error["message"]
    assert (error["param"], error["code"]) == (param, status)


def metric(app: FastAPI, name: str) -> float:
    lines = call(app, "GET", "/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.partition("{")[0] == name)


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


def test_token_ids_are_refused_where_only_texts_are_taken(tiny_engine: Engine) -> None:
    app = create_app(tiny_engine, ServerOptions(reject_token_input=True))
    for given in ([4, 5], [[4], [5]]):
        assert_error(post(app, {"input": given}), 400, "token ids are not taken here: send text", "input")
    assert post(app, {"input": ["a", "b"]}).status_code == 200
    forms = body_schema(app, "/v1/embeddings")["properties"]["input"]["anyOf"]
    assert [form["type"] for form in forms] == ["string", "array"]


def test_a_server_that_would_take_nothing_is_refused(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "wordless")
    (tmp_path / "wordless" / "tokenizer.json").unlink()
    engine = load_engine(tmp_path / "wordless")
    try:
        with pytest.raises(BadUsage, match="has no tokenizer, and token ids are to be refused"):
            create_app(engine, ServerOptions(reject_token_input=True))
        app = create_app(engine, ServerOptions())
        forms = body_schema(app, "/v1/embeddings")["properties"]["input"]["anyOf"]
        assert [form["items"]["type"] for form in forms] == ["integer", "array"]
        for path, field, value in (("/tokenize", "prompt", "a"), ("/detokenize", "tokens", [4])):
            response = call(app, "POST", path, json={field: value})
            assert_error(response, 400, "the model has no tokenizer.json here", field)
    finally:
        engine.close()


def test_a_text_becomes_tokens_and_tokens_a_text(app: FastAPI) -> None:
    asked = {"prompt": "the River nonsense", "model": "alias"}
    found = call(app, "POST", "/tokenize", json=asked).json()
    assert found == {"count": 5, "max_model_len": 64, "tokens": [1, 8, 5, 3, 2], "token_strs": None}
    text = call(app, "POST", "/detokenize", json={"tokens": found["tokens"]}).json()
    assert text == {"prompt": "[CLS] the river [UNK] [SEP]"}
    assert call(app, "POST", "/detokenize", json={"tokens": []}).json() == {"prompt": ""}


def test_tokens_are_named_and_special_ones_left_out_where_that_is_asked(app: FastAPI) -> None:
    asked = {"prompt": "the river", "add_special_tokens": False, "return_token_strs": True}
    found = call(app, "POST", "/tokenize", json=asked).json()
    assert found == {"count": 2, "max_model_len": 64, "tokens": [8, 5], "token_strs": ["the", "river"]}


def test_tokens_are_counted_as_an_embedding_counts_them_and_beyond_the_limit(app: FastAPI) -> None:
    counted = call(app, "POST", "/tokenize", json={"prompt": "rain falls on stone"}).json()["count"]
    assert counted == post(app, {"input": "rain falls on stone"}).json()["usage"]["prompt_tokens"]
    assert call(app, "POST", "/tokenize", json={"prompt": "a " * 500}).json()["count"] == 502


@pytest.mark.parametrize(
    ("path", "body", "message", "param"),
    [
        ("/tokenize", {}, "Field required", "prompt"),
        ("/tokenize", {"prompt": ["a"]}, "valid string", "prompt"),
        ("/tokenize", {"prompt": "a", "add_special_tokens": "no"}, "valid boolean", "add_special_tokens"),
        ("/tokenize", {"prompt": "a" * 4097}, "4097 characters, where 4096 are looked at", "prompt"),
        ("/detokenize", {}, "Field required", "tokens"),
        ("/detokenize", {"tokens": "a"}, "must be a list of token ids", "tokens"),
        ("/detokenize", {"tokens": [4, True]}, "item 1 of tokens is not a token id", "tokens"),
        ("/detokenize", {"tokens": [4, 16]}, "token ids outside 0 to 15", "tokens"),
        ("/detokenize", {"tokens": [-1]}, "token ids outside 0 to 15", "tokens"),
        ("/detokenize", {"tokens": [4] * 4097}, "4097 ids, where 4096 are looked at", "tokens"),
    ],
)
def test_a_bad_question_about_tokens_is_400(app: FastAPI, path: str, body: Any, message: str, param: str) -> None:
    assert_error(call(app, "POST", path, json=body), 400, message, param)


@pytest.mark.parametrize(("path", "body"), [("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [4]})])
def test_questions_about_tokens_have_the_limits_of_the_others(tiny_engine: Engine, path: str, body: Any) -> None:
    app = create_app(tiny_engine, ServerOptions(max_body_bytes=40))
    assert_error(call(app, "POST", path, json=body | {"model": "gpt"}), 404, "`gpt` does not exist", "model")
    assert_error(call(app, "POST", path, json=body | {"model": "x" * 40}), 413, "larger than 40 bytes")
    assert_error(call(app, "POST", path, content=b"{"), 400, "Invalid JSON")


def test_unknown_fields_and_user_are_ignored(app: FastAPI) -> None:
    assert post(app, {"input": "a", "user": "u", "priority": 3, "nonsense": {}}).status_code == 200


@pytest.mark.parametrize(
    ("body", "message", "param"),
    [
        ({"input": ""}, "input 0 is empty", "input"),
        ({"input": []}, "input is empty", "input"),
        ({"input": ["a", ""]}, "input 1 is empty", "input"),
        ({"input": [[]]}, "input 0 is empty", "input"),
        ({"input": None}, "must be a string", "input"),
        ({"input": {"a": 1}}, "must be a string", "input"),
        ({"input": [1, 2.5]}, "item 1 of input is not a token id", "input"),
        ({"input": [[4], [5, True]]}, "item 1 of input 1 is not a token id", "input"),
        ({"input": "a", "truncate_prompt_tokens": True}, "valid integer", "truncate_prompt_tokens"),
        ({"input": "a", "dimensions": True}, "valid integer", "dimensions"),
        ({"input": ["a", 1]}, "must be a string", "input"),
        ({"input": [1.5]}, "must be a string", "input"),
        ({"input": [True]}, "must be a string", "input"),
        ({"input": [99]}, "token ids outside 0 to 15", "input"),
        ({"input": ["a"] * 2049}, "2049 inputs, the limit is 2048", "input"),
        ({"input": "a " * 63}, "64 tokens, but input 0 has 65", "input"),
        ({}, "Field required", "input"),
        ([], "should be an object", None),
        ({"input": "a", "encoding_format": "int8"}, "'float' or 'base64'", "encoding_format"),
        ({"input": "a", "dimensions": 16}, "32 dimensions", "dimensions"),
        ({"input": "a", "dimensions": 0}, "greater than or equal to 1", "dimensions"),
        ({"input": "a", "truncate_prompt_tokens": 65}, "between 3 and 64", "truncate_prompt_tokens"),
        ({"input": "a", "truncate_prompt_tokens": -2}, "greater than or equal to -1", "truncate_prompt_tokens"),
        ({"input": "a", "model": 3}, "valid string", "model"),
    ],
)
def test_a_bad_request_is_400(app: FastAPI, body: Any, message: str, param: str | None) -> None:
    assert_error(post(app, body), 400, message, param)


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"input": "\\ud800"}', b'{"input": "\xff"}', b"[" * 100_000, b'{"input": "a"} x']
)
def test_what_is_not_json_is_400(app: FastAPI, body: bytes) -> None:
    assert_error(call(app, "POST", "/v1/embeddings", content=body), 400, "Invalid JSON")


@pytest.mark.parametrize("item", [1.5, [], {}, None, "a"])
def test_what_is_wrong_many_times_is_refused_without_an_error_for_each(app: FastAPI, item: Any) -> None:
    tracemalloc.start()
    try:
        content = b'{"input": [' + json.dumps(item).encode() + f", {json.dumps(item)}".encode() * 200_000 + b"]}"
        assert_error(call(app, "POST", "/v1/embeddings", content=content), 400, "input", "input")
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


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


def test_a_failure_is_500_that_clients_do_not_retry(faulty: tuple[FastAPI, Engine, FaultyAdapter]) -> None:
    app, _, adapter = faulty
    adapter.faults |= {7: float("inf"), 8: RuntimeError("/secret/path")}
    response = post(app, {"input": ids(7)})
    assert_error(response, 500, "input 0 gave a vector that is not finite")
    assert response.headers["x-should-retry"] == "false"
    assert "secret" not in post(app, {"input": ids(8)}).text
    assert post(app, {"input": ids(9)}).status_code == 200
    assert metric(app, "probe:request_failures_total") == 2


def test_a_full_queue_is_429_with_a_time(faulty: tuple[FastAPI, Engine, FaultyAdapter]) -> None:
    app, engine, adapter = faulty
    adapter.gate.clear()
    futures = [engine.submit(engine.prepare(ids(64)))]
    wait_until(lambda: engine.queue_state().running == 1)
    futures.append(engine.submit(engine.prepare(ids(64))))
    for given in (ids(40), "a " * 38):  # as ids and as text
        response = post(app, {"input": given})
        assert_error(response, 429, "64 tokens are waiting, the limit is 100")
        assert 1 <= int(response.headers["retry-after"]) <= 120
    adapter.gate.set()
    assert [future.result(20).prompt_tokens for future in futures] == [64, 64]
    assert metric(app, "vllm:admission_rejections_total") == 2


def test_after_a_refusal_a_request_is_refused_unread(faulty: tuple[FastAPI, Engine, FaultyAdapter]) -> None:
    app, engine, adapter = faulty
    adapter.gate.clear()
    futures = [engine.submit(engine.prepare(ids(64)))]
    wait_until(lambda: engine.queue_state().running == 1)
    futures.append(engine.submit(engine.prepare(ids(64))))
    assert_error(call(app, "POST", "/v1/embeddings", content=b"not JSON"), 400, "Invalid JSON")
    assert post(app, {"input": ids(40)}).status_code == 429
    for path in ("/v1/embeddings", "/tokenize", "/detokenize"):
        assert_error(call(app, "POST", path, content=b"not JSON"), 429, "64 tokens are waiting")
    adapter.gate.set()
    for future in futures:
        future.result(20)
    assert_error(call(app, "POST", "/v1/embeddings", content=b"not JSON"), 400, "Invalid JSON")


def test_load_counts_what_waits_and_runs(faulty: tuple[FastAPI, Engine, FaultyAdapter]) -> None:
    app, engine, adapter = faulty
    adapter.gate.clear()
    futures = [engine.submit(engine.prepare(ids(64)))]
    wait_until(lambda: engine.queue_state().running == 1)
    futures.append(engine.submit(engine.prepare(ids(64))))
    assert call(app, "GET", "/load").json() == {"server_load": 2}
    adapter.gate.set()
    for future in futures:
        future.result(20)


def test_a_draining_server_is_503_and_closes(faulty: tuple[FastAPI, Engine, FaultyAdapter]) -> None:
    app, engine, _ = faulty
    engine.stop_admitting()
    response = post(app, {"input": "a"})
    assert_error(response, 503, "shutting down")
    assert (response.headers["retry-after"], response.headers["connection"]) == ("1", "close")
    assert call(app, "GET", "/health").status_code == 503
    live = call(app, "GET", "/live")
    assert (live.status_code, live.headers["connection"]) == (200, "close")


def test_a_stalled_engine_is_503(faulty: tuple[FastAPI, Engine, FaultyAdapter]) -> None:
    app, engine, adapter = faulty
    engine.stall_s = 0.05
    adapter.gate.clear()
    future = engine.submit(engine.prepare(ids(5)))
    wait_until(lambda: call(app, "GET", "/health").status_code == 503)
    assert "has not moved" in call(app, "GET", "/health").text
    adapter.gate.set()
    future.result(20)


def test_a_client_that_hangs_up_while_it_sends_is_counted_and_nothing_more(
    faulty: tuple[FastAPI, Engine, FaultyAdapter], caplog: pytest.LogCaptureFixture
) -> None:
    app = faulty[0]
    sent: list[Any] = []
    parts = iter([{"type": "http.request", "body": b'{"input": ', "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(parts)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/embeddings", "headers": [], "query_string": b""}
    asyncio.run(app(scope | {"root_path": ""}, receive, send))
    assert [message["status"] for message in sent if "status" in message] == [499]
    assert not caplog.records
    assert metric(app, "probe:request_failures_total") == 1


def test_a_client_that_goes_away_leaves_the_queue(faulty: tuple[FastAPI, Engine, FaultyAdapter]) -> None:
    app, engine, adapter = faulty
    adapter.gate.clear()
    running = engine.submit(engine.prepare(ids(64)))
    wait_until(lambda: engine.queue_state().running == 1)

    async def until_queued() -> AsyncIterator[None]:
        while engine.queue_state().waiting_tokens != 33:
            await asyncio.sleep(0.005)
            yield

    content = json.dumps({"input": ids(33)}).encode()
    gone = request(app, "POST", "/v1/embeddings", content, until=until_queued())
    assert asyncio.run(asyncio.wait_for(gone, 20)).status_code == 499
    assert engine.queue_state().waiting_tokens == 0
    adapter.gate.set()
    running.result(20)
    assert (33,) not in adapter.steps
    assert metric(app, "probe:request_failures_total") == 1
