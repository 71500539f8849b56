"""The OpenAPI document: what each route takes from this model, and all that it can answer.

The models of the answers are only described with; routes write their JSON themselves.
"""

from typing import Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel

from vllm_probe.runtime.engine import Engine
from vllm_probe.runtime.server.schema import DetokenizeRequest, EmbeddingRequest, TokenizeRequest

_MEANINGS = {
    400: "The request means nothing to this model.",
    401: "The key is missing or wrong.",
    404: "The model is not served here.",
    408: "The body stopped coming.",
    413: "The body is too large.",
    429: "Too much waits; `Retry-After` says when to come back.",
    500: "The computation failed; the same request would fail again.",
    503: "The server is shutting down.",
}
_ERROR = "#/components/schemas/ErrorAnswer"


class Error(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: int


class ErrorAnswer(BaseModel):
    """An error object."""

    error: Error


class Status(BaseModel):
    """One word, or a reason."""

    status: str


class Embedding(BaseModel):
    """One vector: numbers, or base64 of little-endian float32."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Usage(BaseModel):
    """Tokens that were computed."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingAnswer(BaseModel):
    """Vectors in the order of the inputs."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Embedding]
    usage: Usage


class ModelFacts(BaseModel):
    """A name that the server answers to."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    max_model_len: int


class ModelList(BaseModel):
    """All of them."""

    object: Literal["list"]
    data: list[ModelFacts]


class Tokens(BaseModel):
    """Token ids of a text."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Text(BaseModel):
    """The text of token ids."""

    prompt: str


class Version(BaseModel):
    """The version of vllm-probe."""

    version: str


class Load(BaseModel):
    """Requests that are received, wait or run."""

    server_load: int


def bodies(engine: Engine, names: tuple[str, ...], *, takes_token_ids: bool) -> dict[str, dict[str, Any]]:
    """The request body of each POST route, with the limits of this model in it."""
    ids = {"minimum": 0, "maximum": engine.spec.vocab_size - 1}
    schemas = {
        "/v1/embeddings": EmbeddingRequest.model_json_schema(),
        "/tokenize": TokenizeRequest.model_json_schema(),
        "/detokenize": DetokenizeRequest.model_json_schema(),
    }
    embeddings, _, detokenize = (schema["properties"] for schema in schemas.values())
    text, texts, one, several = embeddings["input"]["anyOf"]
    for numbers in (one, several["items"], detokenize["tokens"]):
        numbers["items"] |= ids
    embeddings["input"]["anyOf"] = [*((text, texts) * engine.reads_text), *((one, several) * takes_token_ids)]
    width, reader = engine.spec.hidden_size, engine.reader
    _restrict(embeddings, "dimensions", minimum=1 if engine.spec.is_matryoshka else width, maximum=width)
    limits = {"minimum": reader.least_tokens, "maximum": engine.config.max_model_len}
    _restrict(embeddings, "truncate_prompt_tokens", anyOf=[{"const": -1}, {"type": "integer", **limits}])
    named = ("input_type", "prompt_name")
    for field in named:
        _restrict(embeddings, field, enum=list(reader.prompt_names))
    if reader.prompt_names:  # which no token ids can follow
        without = {"properties": {field: {"type": "null"} for field in named}}
        schemas["/v1/embeddings"]["anyOf"] = [{"properties": {"input": {"anyOf": [text, texts]}}}, without]
    for schema in schemas.values():
        _restrict(schema["properties"], "model", enum=list(names))
    return schemas


def _restrict(fields: dict[str, Any], name: str, **limits: Any) -> None:
    """Puts `limits` on a field that may also be null; with an empty enum it may be nothing else."""
    kind, null = fields[name]["anyOf"]
    if "anyOf" in limits:
        kind = limits
    else:
        kind |= limits
    fields[name]["anyOf"] = [kind, null] if kind.get("enum") != [] else [null]


def operation(answer: type[BaseModel], *errors: int, **extra: Any) -> dict[str, Any]:
    """Arguments of `add_api_route` that describe an operation.

    Args:
        answer: the 200.
        errors: statuses that come with an error object.
        extra: parts of the OpenAPI operation.
    """
    described = {status: {"model": ErrorAnswer, "description": _MEANINGS[status]} for status in errors}
    return {"responses": {200: {"model": answer, "description": answer.__doc__}, **described}, "openapi_extra": extra}


def require_key(app: FastAPI, open_paths: frozenset[str]) -> None:
    """Says in the document that all but `open_paths` need a bearer token."""
    document = app.openapi()
    document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    refusal = {"description": _MEANINGS[401], "content": {"application/json": {"schema": {"$ref": _ERROR}}}}
    for path, operations in document["paths"].items():
        for item in operations.values() if path not in open_paths else ():
            item["security"] = [{"key": []}]
            item["responses"]["401"] = refusal
