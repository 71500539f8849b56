"""The OpenAI wire format: request bodies, responses and error objects.

https://platform.openai.com/docs/api-reference/embeddings, with vLLM's truncation, error types and token routes,
Cohere's `input_type` and text-embeddings-inference's `prompt_name`.
"""

import base64
import gc
import time
import uuid
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from fastapi import Response
from pydantic import BaseModel, BeforeValidator, Field, PlainValidator, ValidationError
from pydantic_core import from_json, to_json

from vllm_probe.runtime.executor.result import ByteOrder, Embeddings, EmbedDtype
from vllm_probe.runtime.server.inputs import MAX_INPUTS, parse_input, parse_token_ids, whole

_Text: TypeAlias = Annotated[str, Field(min_length=1)]
_Ids: TypeAlias = Annotated[list[int], Field(min_length=1)]
_Texts: TypeAlias = Annotated[list[_Text], Field(min_length=1, max_length=MAX_INPUTS)]
_IdLists: TypeAlias = Annotated[list[_Ids], Field(min_length=1, max_length=MAX_INPUTS)]
_Flag: TypeAlias = Annotated[bool, Field(strict=True)]
_Body = TypeVar("_Body", bound=BaseModel)
_TYPES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    404: "NotFoundError",
    429: "RateLimitError",
    503: "ServiceUnavailableError",
}


class ApiError(Exception):
    """An error object with its status, sent instead of a response.

    Attributes:
        status: HTTP status.
        param: field of the request that is at fault.
        headers: further response headers.
    """

    def __init__(self, status: int, message: str, param: str | None = None, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def response(self) -> Response:
        """The HTTP response."""
        kind = _TYPES.get(self.status, "InternalServerError" if self.status >= 500 else "BadRequestError")
        body = {"message": str(self), "type": kind, "param": self.param, "code": self.status}
        return json_response({"error": body}, self.status, self.headers)


def _refuse_messages(value: object) -> None:
    if value is not None:
        raise ValueError("messages are not taken here: send input")


class EmbeddingRequest(BaseModel):
    """Body of POST /v1/embeddings; fields that it does not know are ignored, as OpenAI and vLLM do."""

    messages: Annotated[None, PlainValidator(_refuse_messages, json_schema_input_type=None)] = None
    input: Annotated[
        list[str] | list[list[int]],
        PlainValidator(parse_input, json_schema_input_type=_Text | _Texts | _Ids | _IdLists),
    ]
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    embed_dtype: EmbedDtype | None = None
    endianness: ByteOrder | None = None
    normalize: _Flag | None = None
    use_activation: _Flag | None = None
    add_special_tokens: _Flag | None = None
    dimensions: Annotated[int, Field(ge=1, strict=True), BeforeValidator(whole)] | None = None
    truncate_prompt_tokens: Annotated[int, Field(ge=-1, strict=True), BeforeValidator(whole)] | None = None
    truncation_side: Literal["left", "right"] | None = None
    input_type: str | None = None
    prompt_name: str | None = None
    user: str | None = None

    @property
    def normalizes(self) -> bool | None:
        """Whether vectors are scaled to unit length: not where either of vLLM's two names for it is false."""
        given = [flag for flag in (self.normalize, self.use_activation) if flag is not None]
        return all(given) if given else None


class TokenizeRequest(BaseModel):
    """Body of POST /tokenize."""

    prompt: str
    model: str | None = None
    add_special_tokens: _Flag = True
    return_token_strs: _Flag | None = False


class DetokenizeRequest(BaseModel):
    """Body of POST /detokenize."""

    tokens: Annotated[list[int], PlainValidator(parse_token_ids, json_schema_input_type=list[int])]
    model: str | None = None


def parse_request(body: bytes | bytearray, form: type[_Body]) -> _Body:
    """The request that `body` holds; for large bodies a matter of tenths of a second, so not for the event loop.

    Raises:
        ApiError: 400, not JSON or not of this form.
    """
    document = _parse_json(body)
    if not isinstance(document, dict):
        raise ApiError(400, "the body should be an object")
    try:
        return form.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        param = str(first["loc"][0])
        refused = first.get("ctx", {}).get("error")  # what `parse_input` raised
        raise ApiError(400, str(refused) if refused else f"{param}: {first['msg']}", param) from error


def _parse_json(body: bytes | bytearray) -> object:
    """What `body` says; the garbage collector, which would walk over a million new lists again and again, rests."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return from_json(body, cache_strings="none")
    except ValueError as error:
        raise ApiError(400, f"Invalid JSON: {error}") from error
    finally:
        if collects:
            gc.enable()


def render_embeddings(result: Embeddings, model: str, asked: EmbeddingRequest) -> Response:
    """The response to an embeddings request.

    Raises:
        ApiError: 400, a value is larger than the number format goes.
    """
    rows = _base64(result, asked) if asked.encoding_format == "base64" else _floats(result)
    body = {
        "id": f"embd-{uuid.uuid4().hex}",
        "object": "list",
        "created": int(time.time()),
        "model": model,
        "data": [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)],
        "usage": {"prompt_tokens": result.prompt_tokens, "total_tokens": result.prompt_tokens},
    }
    cut = {"x-truncated-inputs": str(result.num_truncated)} if result.num_truncated else {}
    return json_response(body, 200, cut)


def _floats(result: Embeddings) -> list[Any]:
    return [row.cast("f").tolist() for row in result.rows()]


def _base64(result: Embeddings, asked: EmbeddingRequest) -> list[Any]:
    try:
        rows = result.rows(asked.embed_dtype or "float32", asked.endianness or "little")
        return [base64.b64encode(row).decode() for row in rows]
    except OverflowError as error:
        raise ApiError(400, str(error), "embed_dtype") from error


def json_response(body: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """`body` as JSON; several times faster on vectors than the standard library."""
    return Response(to_json(body), status, headers, "application/json")
