"""The HTTP interface over ASGI: tokens of a text, and the text of tokens."""

from typing import Any

import pytest
from fastapi import FastAPI

from tests.runtime.asgi import assert_error, call, post
from vllm_probe.runtime.engine import Engine
from vllm_probe.runtime.server.app import ServerOptions, create_app


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
