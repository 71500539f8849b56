"""What each path answers."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from fastapi import Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from vllm_probe.core.version import __version__
from vllm_probe.runtime.engine import Engine
from vllm_probe.runtime.modeling.tokenizing import Prompts
from vllm_probe.runtime.sched.request import QueueClosed, QueueFull, RequestError, RequestFailed
from vllm_probe.runtime.server.front import Front, Parts, Place
from vllm_probe.runtime.server.inputs import MAX_REQUEST_TOKENS
from vllm_probe.runtime.server.metrics import Metrics
from vllm_probe.runtime.server.schema import (
    ApiError,
    DetokenizeRequest,
    EmbeddingRequest,
    TokenizeRequest,
    json_response,
    parse_request,
    render_embeddings,
)

_CLIENT_CLOSED_REQUEST = 499  # nginx's status; nobody reads it
_Body = TypeVar("_Body", EmbeddingRequest, TokenizeRequest, DetokenizeRequest)


class Routes:
    """The handlers, named after their paths."""

    def __init__(self, engine: Engine, names: tuple[str, ...], *, max_body_bytes: int, takes_token_ids: bool) -> None:
        """Answers for `engine` under `names`, with the first of them."""
        self._engine = engine
        self._names = names
        self._takes_token_ids = takes_token_ids
        self._created = int(time.time())
        self._front = Front(engine.check_room, max_body_bytes)
        self._metrics = Metrics(engine, self._front, names[0])

    async def embeddings(self, request: Request) -> Response:
        """Vectors of the inputs."""
        return await self._answer(request, partial(self._embed, time.perf_counter()))

    async def _embed(self, begun_s: float, place: Place) -> Response:
        asked, prompts = await self._front.read(place, self._prepare)
        tokenized_s = time.perf_counter()
        result = await asyncio.wrap_future(self._engine.submit(prompts, place.num_bytes))
        response = render_embeddings(result, self._names[0], asked)
        self._metrics.answered(result, tokenized_s - begun_s, time.perf_counter() - begun_s)
        return response

    async def gone(self, *_: object) -> Response:
        """Nobody waits for the answer, or has even sent the whole question; that is counted."""
        self._metrics.failed("disconnected")
        return Response(status_code=_CLIENT_CLOSED_REQUEST)

    async def tokenize(self, request: Request) -> Response:
        """Token ids of a text, of any number of tokens."""
        return await self._answer(request, partial(self._reply, self._tokens))

    async def detokenize(self, request: Request) -> Response:
        """The text of token ids, special tokens included."""
        return await self._answer(request, partial(self._reply, self._text))

    async def _answer(self, request: Request, work: Callable[[Place], Coroutine[Any, Any, Response]]) -> Response:
        """What `work` makes of the body; when the client goes away it ends, and what waits of it is dropped.

        Raises:
            ClientDisconnect: it went away.
        """
        with self._front.enter() as place:
            await self._front.receive(place, request)
            answer, gone = asyncio.create_task(work(place)), asyncio.create_task(_disconnected(request))
            try:
                await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
                if answer.done():
                    return answer.result()
                raise ClientDisconnect
            finally:
                answer.cancel()
                gone.cancel()

    async def _reply(self, parse: Callable[[bytearray], Parts[dict[str, Any]]], place: Place) -> Response:
        return json_response(await self._front.read(place, parse))

    def _prepare(self, body: bytearray) -> Parts[tuple[EmbeddingRequest, Prompts]]:
        asked = self._parse(body, EmbeddingRequest)
        if not self._takes_token_ids and not isinstance(asked.input[0], str):
            raise ApiError(400, "token ids are not taken here: send text", "input")
        try:
            prompts = yield from self._engine.prepare_in_parts(
                asked.input,
                dimensions=asked.dimensions,
                normalizes=asked.normalizes,
                truncate_prompt_tokens=asked.truncate_prompt_tokens,
                truncation_side=asked.truncation_side,
                prompt_name=asked.prompt_name or asked.input_type,
                add_special_tokens=asked.add_special_tokens is not False,
                max_request_tokens=MAX_REQUEST_TOKENS,
            )
        except RequestError as error:
            if error.param == "prompt_name" and not asked.prompt_name:
                error.param = "input_type"
            raise
        return asked, prompts

    def _tokens(self, body: bytearray) -> Parts[dict[str, Any]]:
        asked = self._parse(body, TokenizeRequest)
        yield 0
        reader = self._engine.reader
        ids = reader.tokenize(asked.prompt, add_special_tokens=asked.add_special_tokens)
        return {
            "count": len(ids),
            "max_model_len": self._engine.config.max_model_len,
            "tokens": ids,
            "token_strs": reader.names(ids) if asked.return_token_strs else None,
        }

    def _text(self, body: bytearray) -> Parts[dict[str, Any]]:
        asked = self._parse(body, DetokenizeRequest)
        yield 0
        return {"prompt": self._engine.reader.detokenize(asked.tokens)}

    def _parse(self, body: bytearray, form: type[_Body]) -> _Body:
        asked = parse_request(body, form)
        if asked.model is not None and asked.model not in self._names:
            raise _unknown_model(asked.model)
        return asked

    async def models(self) -> Response:
        """The names that this server answers to."""
        return json_response({"object": "list", "data": [self._facts(name) for name in self._names]})

    async def model(self, request: Request) -> Response:
        """One of them."""
        name = request.path_params["name"]
        if name not in self._names:
            raise _unknown_model(name)
        return json_response(self._facts(name))

    def _facts(self, name: str) -> dict[str, Any]:
        config = self._engine.config
        facts = {"id": name, "object": "model", "created": self._created, "owned_by": "vllm-probe"}
        return {**facts, "root": config.model, "max_model_len": config.max_model_len}

    async def health(self, _: Request) -> Response:
        """Whether requests will be answered: 503 while draining and when the engine does not move."""
        reason = self._engine.unhealthy()
        return json_response({"status": reason or "ready"}, 503 if reason else 200)

    async def load(self) -> Response:
        """Requests that are received, wait or run, as vLLM counts them."""
        state = self._engine.queue_state()
        return json_response({"server_load": self._front.num_requests + state.waiting + state.running})

    async def live(self, _: Request) -> Response:
        """Whether the process answers at all."""
        return json_response({"status": "alive"})

    async def metrics(self) -> Response:
        """Prometheus metrics."""
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def version(self) -> Response:
        """The version of vllm-probe."""
        return json_response({"version": __version__})

    async def failure(self, request: Request, error: Exception) -> Response:
        """The error object for anything that a handler raised."""
        match error:
            case ApiError():
                answer = error
            case RequestError():
                answer = ApiError(400, str(error), error.param)
            case QueueFull():
                self._metrics.rejected("queue_full")
                answer = ApiError(429, str(error), retry_after=str(error.retry_after_s))
            case QueueClosed():
                self._metrics.rejected("draining")
                answer = ApiError(503, str(error), retry_after="1", connection="close")
            case RequestFailed():
                self._metrics.failed(error.reason)
                answer = ApiError(500, str(error), x_should_retry="false")
            case HTTPException(status_code=404):
                answer = self._no_route(request)
            case HTTPException():
                answer = ApiError(error.status_code, error.detail, **(error.headers or {}))
            case _:
                answer = ApiError(500, "internal error")
        if answer.status < 500 and answer.status != 429:
            self._metrics.failed("refused")
        return answer.response()

    def _no_route(self, request: Request) -> ApiError:
        asked = f"{request.method[:10]} {request.url.path[:200]}"
        serves = f"{self._names[0]} is an embedding model: POST /v1/embeddings"
        return ApiError(404, f"There is no {asked} here. {serves}; GET /docs shows every route.")


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _unknown_model(name: str) -> ApiError:
    return ApiError(404, f"The model `{name[:200]}` does not exist.", "model")
