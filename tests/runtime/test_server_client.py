"""The official client against a real server in a process of its own."""

import asyncio
import base64
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree
from typing import Any

import openai
import pytest

from tests.runtime.server_process import hold, metric, release, server
from tests.runtime.support import load_engine, wait_until
from vllm_probe.runtime.engine import Engine

TEXTS = ["the river is cold", "rain falls on stone", "a"]
KEY = "secret"
REFUSALS = "vllm:admission_rejections_total"


@pytest.fixture(scope="module")
def url(tiny: Path) -> Iterator[str]:
    with server(tiny) as (_, address):
        yield address


@pytest.fixture(scope="module")
def busy(tiny: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server with a key and a short queue."""
    with server(tiny, "--queue", "100", "--api-key", KEY) as process_and_address:
        yield process_and_address


@contextmanager
def occupied(process: subprocess.Popen[str], url: str) -> Iterator[None]:
    """No second large request is admitted, until one was refused."""
    refused = metric(url, REFUSALS, key=KEY)
    hold(process)

    def release_later() -> None:
        wait_until(lambda: metric(url, REFUSALS, key=KEY) > refused)
        release(process)

    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        long = threading.Thread(target=lambda: client.embeddings.create(model="tiny", input=[[4] * 60] * 40))
        long.start()
        wait_until(lambda: metric(url, "vllm:num_requests_running", key=KEY) == 1)
        releasing = threading.Thread(target=release_later)
        releasing.start()
        yield
        releasing.join()
        long.join()


def test_the_official_client_gets_the_vectors(url: str, tiny_engine: Engine) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        by_default = client.embeddings.create(model="tiny", input=TEXTS)
        floats = client.embeddings.create(model="tiny", input=TEXTS, encoding_format="float")
        packed = client.embeddings.create(model="tiny", input=TEXTS, encoding_format="base64")
        assert [model.id for model in client.models.list()] == ["tiny", "alias"]
    wanted = tiny_engine.embed(TEXTS).vectors.tolist()
    assert [item.embedding for item in by_default.data] == wanted
    assert [item.embedding for item in floats.data] == wanted
    assert len(base64.b64decode(str(packed.data[0].embedding))) == 4 * 32
    assert by_default.usage.prompt_tokens == 15


def test_the_official_client_works_asynchronously(url: str, tiny_engine: Engine) -> None:
    async def ask() -> list[list[float]]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
            asked = [client.embeddings.create(model="alias", input=text) for text in TEXTS]
            return [answer.data[0].embedding for answer in await asyncio.gather(*asked)]

    wanted = tiny_engine.embed(TEXTS).vectors
    for found, row in zip(asyncio.run(ask()), wanted, strict=True):
        assert found == pytest.approx(row.tolist(), abs=1e-6)


def test_the_official_client_reads_headers_and_extra_fields(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        raw = client.embeddings.with_raw_response.create(
            model="tiny",
            input="a " * 80,
            extra_body={"truncate_prompt_tokens": -1},
            extra_headers={"X-Request-Id": "7"},
        )
    assert raw.headers["x-truncated-inputs"] == "1"
    assert raw.headers["x-request-id"] == "7"
    assert raw.retries_taken == 0
    assert raw.parse().usage.prompt_tokens == 64


def test_the_official_client_maps_errors(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        with pytest.raises(openai.BadRequestError, match="input 0 is empty") as refused:
            client.embeddings.create(model="tiny", input="")
        assert refused.value.param == "input"
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(model="gpt", input="a")
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("gpt")
        with pytest.raises(openai.BadRequestError, match="token ids outside 0 to 15"):
            client.embeddings.create(model="tiny", input=[[99]])


def test_the_official_client_learns_of_a_wrong_key(busy: tuple[Any, str]) -> None:
    with openai.OpenAI(base_url=f"{busy[1]}/v1", api_key="wrong") as client:
        with pytest.raises(openai.AuthenticationError, match="a valid API key is needed") as refused:
            client.models.list()
        assert refused.value.type == "AuthenticationError"


def test_the_official_client_gets_the_vectors_of_token_ids(url: str, tiny_engine: Engine) -> None:
    several, one = [[1, 8, 5, 2], [1, 4, 2]], [1, 8, 5, 2]
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        found = [item.embedding for item in client.embeddings.create(model="tiny", input=several).data]
        alone = [item.embedding for item in client.embeddings.create(model="tiny", input=one).data]
    assert found == tiny_engine.embed(several).vectors.tolist()
    assert alone == tiny_engine.embed([one]).vectors.tolist()


def test_the_official_client_lists_and_retrieves_models(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        listed = list(client.models.list())
        assert [client.models.retrieve(model.id) for model in listed] == listed
    assert [model.id for model in listed] == ["tiny", "alias"]


def test_the_official_client_chooses_dimensions(tiny: Path, tmp_path: Path) -> None:
    folder = copytree(tiny, tmp_path / "nested")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"is_matryoshka": True}))
    engine = load_engine(folder)
    wanted = engine.embed(TEXTS, dimensions=8).vectors.tolist()
    engine.close()
    with server(folder) as (_, url), openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        found = client.embeddings.create(model="tiny", input=TEXTS, dimensions=8)
        assert [item.embedding for item in found.data] == wanted
        for dimensions in (0, 33):
            with pytest.raises(openai.BadRequestError) as refused:
                client.embeddings.create(model="tiny", input="a", dimensions=dimensions)
            assert refused.value.param == "dimensions"


def test_the_official_client_learns_when_to_come_back(busy: tuple[Any, str]) -> None:
    with openai.OpenAI(base_url=f"{busy[1]}/v1", api_key=KEY, max_retries=0) as client, occupied(*busy):
        with pytest.raises(openai.RateLimitError, match="another large request") as refused:
            client.embeddings.create(model="tiny", input=TEXTS * 8)
        assert int(refused.value.response.headers["retry-after"]) >= 1


def test_the_official_client_comes_back_when_it_was_told_to(busy: tuple[Any, str]) -> None:
    with openai.OpenAI(base_url=f"{busy[1]}/v1", api_key=KEY, max_retries=9) as client, occupied(*busy):
        began = time.monotonic()
        raw = client.embeddings.with_raw_response.create(model="tiny", input=TEXTS * 8)
        waited_s = time.monotonic() - began
    assert raw.retries_taken >= 1
    assert waited_s >= raw.retries_taken  # its own first pause would be half a second
    assert len(raw.parse().data) == 24


def test_the_official_client_comes_back_asynchronously(busy: tuple[Any, str]) -> None:
    async def ask() -> Any:
        async with openai.AsyncOpenAI(base_url=f"{busy[1]}/v1", api_key=KEY, max_retries=9) as client:
            return await client.embeddings.with_raw_response.create(model="tiny", input=TEXTS * 8)

    with occupied(*busy):
        raw = asyncio.run(ask())
    assert raw.retries_taken >= 1
    assert len(raw.parse().data) == 24
