"""The hub is asked last, for few files, and whatever it answers ends in a model or in two lines."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from tests.hub import COMMIT, LocalHub, local_hub
from tests.unit.models.folders import BERT, BERT_TENSORS, QWEN3, host, minilm, safetensors, write
from vllm_probe.core.errors import (
    BadUsage,
    HubRefused,
    HubUnreachable,
    InvalidModel,
    ProbeError,
    UnknownModel,
    UnwritableOutput,
    WeightsUnavailable,
)
from vllm_probe.core.system import Host
from vllm_probe.models.hub import Hub, _within
from vllm_probe.models.hub_client import translated
from vllm_probe.models.resolve import fetch_model, resolve_model

TINY = "acme/tiny-encoder"
UNWANTED = {
    "README.md": b"a",
    "modeling_tiny.py": b"raise SystemExit",
    "pytorch_model.bin": b"\x80",
    "model.fp16.safetensors": b"",
    "onnx/model.onnx": b"o",
    "onnx/config.json": b"{}",
    "tokenizer.json": b"{}",
}


@pytest.fixture
def hub() -> Iterator[LocalHub]:
    with local_hub() as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path, hub: LocalHub) -> Path:
    """The folder of a model that the hub holds, with files beside it that nobody needs."""
    path = write(tmp_path / "source" / "tiny-encoder", minilm() | UNWANTED)
    (path / "pytorch_model.bin").unlink()
    hub.put(TINY, path)
    hub.repositories[TINY] = {**hub.repositories[TINY], "pytorch_model.bin": b"\x80"}
    return path


def user(hub: LocalHub, tmp_path: Path, **more: str) -> Host:
    return host({"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), **more})


def test_what_is_downloaded_is_the_model_that_the_folder_is(tmp_path: Path, hub: LocalHub, folder: Path) -> None:
    here = user(hub, tmp_path)
    fetched = fetch_model(resolve_model(TINY, here, for_serving=True), here)
    original = resolve_model(str(folder), here, for_serving=True)
    assert fetched.weights_path is not None
    assert Path(fetched.weights_path, "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    place = {"weights_path": original.weights_path, "folder": original.folder, "source": original.source}
    assert replace(fetched, **place, repository=None) == original  # type: ignore[arg-type]
    assert (fetched.name, fetched.repository) == ("tiny-encoder", TINY)


def test_only_documents_tokenizer_and_safetensors_are_asked_for(tmp_path: Path, hub: LocalHub, folder: Path) -> None:
    Hub.of(user(hub, tmp_path)).download(TINY)
    assert set(hub.fetched()) == {*minilm(), "tokenizer.json"}
    assert hub.fetched()[-1] == "model.safetensors"


def test_what_is_in_the_cache_is_found_there_without_the_hub(tmp_path: Path, hub: LocalHub, folder: Path) -> None:
    here = user(hub, tmp_path)
    Hub.of(here).download(TINY)
    hub.asked.clear()
    assert resolve_model(TINY, here, for_serving=True).weights_path is not None
    assert hub.asked == []


def test_an_interrupted_download_goes_on_and_a_broken_file_where_it_broke(tmp_path: Path, hub: LocalHub) -> None:
    weights = safetensors({**BERT_TENSORS, "bulk": ("F32", (3 << 20,))})
    hub.put(TINY, write(tmp_path / "source", minilm() | {"model.safetensors": weights}))
    here = Hub.of(user(hub, tmp_path))
    listing = here.listing(TINY)
    for name in listing.documents:
        here.fetch(listing, name)
    hub.asked.clear()
    hub.breaks_at["model.safetensors"] = 11 << 20
    assert (here.download(TINY) / "model.safetensors").read_bytes() == weights
    assert set(hub.fetched()) == {"model.safetensors"}
    ranges = [headers.get("range") for method, path, headers in hub.asked if method == "GET" and "resolve" in path]
    assert ranges == [None, f"bytes={10 << 20}-"]  # huggingface_hub writes pieces of 10 MiB


def test_progress_counts_the_weights_and_ends_at_the_total(tmp_path: Path, hub: LocalHub) -> None:
    big = safetensors({**BERT_TENSORS, "extra.weight": ("F32", (3 << 18,))})
    hub.repositories[TINY] = {"config.json": b"{}", "model.safetensors": big}
    seen: list[tuple[str, int, int]] = []
    Hub.of(user(hub, tmp_path)).download(TINY, lambda *step: seen.append(step))
    assert seen[0] == (f"model.safetensors of {TINY}, MiB", 0, 4)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert seen[-1][1:] == (4, 4)


def test_negotiating_reads_documents_and_headers_and_keeps_nothing(tmp_path: Path, hub: LocalHub, folder: Path) -> None:
    here = user(hub, tmp_path)
    spec, local = resolve_model(TINY, here), resolve_model(str(folder), here)
    assert (spec.weight_bytes, spec.num_parameters) == (local.weight_bytes, local.num_parameters)
    assert (spec.pooling, spec.max_model_len, spec.weights_path, spec.folder) == ("mean", 256, None, None)
    assert spec.source == f"config and safetensors headers of {TINY} at {COMMIT[:12]} on {hub.url}"
    assert not (tmp_path / "home").exists()
    asked = len(hub.asked)
    assert resolve_model(TINY, here) == spec
    assert len(hub.asked) == asked


@pytest.mark.parametrize("ignores", [False, True])
def test_of_the_weights_only_the_header_is_received(tmp_path: Path, hub: LocalHub, ignores: bool) -> None:
    bulk: dict[str, tuple[str, tuple[int, ...]]] = {f"bulk.{index}": ("F32", (1 << 20,)) for index in range(8)}
    hub.ignores_ranges = ignores
    hub.repositories[TINY] = {
        "config.json": json.dumps(BERT).encode(),
        "model.safetensors": safetensors({**BERT_TENSORS, **bulk}),
    }
    assert resolve_model(TINY, user(hub, tmp_path)).weight_bytes is not None
    assert hub.sent_bytes < 16 << 20


def test_shards_are_read_as_the_index_says(tmp_path: Path, hub: LocalHub) -> None:
    names = list(BERT_TENSORS)
    halves = (names[: len(names) // 2], names[len(names) // 2 :])
    files = [f"model-0000{index}-of-00002.safetensors" for index in (1, 2)]
    weight_map = {name: file for file, half in zip(files, halves, strict=True) for name in half}
    source = write(
        tmp_path / "sharded", {"config.json": BERT, "model.safetensors.index.json": {"weight_map": weight_map}}
    )
    for file, half in zip(files, halves, strict=True):
        (source / file).write_bytes(safetensors({name: BERT_TENSORS[name] for name in half}))
    hub.put(TINY, source)
    here = user(hub, tmp_path)
    assert resolve_model(TINY, here).weight_bytes == resolve_model(str(source), here).weight_bytes
    hub.breaks_at[files[1]] = 0
    listing = Hub.of(here).listing(TINY)
    for name in (*listing.documents, files[0]):
        Hub.of(here).fetch(listing, name)
    assert resolve_model(TINY, here).weights_path is None
    assert Path(fetch_model(resolve_model(TINY, here), here).weights_path or "", files[1]).exists()


def test_a_model_of_the_catalogue_gets_its_weights_from_its_repository(tmp_path: Path, hub: LocalHub) -> None:
    hub.put("Qwen/Qwen3-Embedding-0.6B", write(tmp_path / "q", {"config.json": QWEN3, "model.safetensors": b""}))
    assert resolve_model("qwen3-embedding-0.6b", user(hub, tmp_path)).source.startswith("catalogue entry")
    assert hub.asked == []
    spec = resolve_model("qwen3-embedding-0.6b", user(hub, tmp_path), for_serving=True)
    assert (spec.weights_path, len(hub.asked)) == (None, 1)


def test_a_repository_with_pickled_weights_is_not_served(tmp_path: Path, hub: LocalHub) -> None:
    hub.put(TINY, write(tmp_path / "p", {"config.json": BERT, "pytorch_model.bin": b"\x80"}))
    assert resolve_model(TINY, user(hub, tmp_path)).weight_bytes is None
    with pytest.raises(WeightsUnavailable, match="pickle is not read"):
        resolve_model(TINY, user(hub, tmp_path), for_serving=True)


def test_an_absent_or_private_repository_is_unknown_with_what_is_alike(tmp_path: Path, hub: LocalHub) -> None:
    with pytest.raises(UnknownModel, match="neither on this machine nor in the catalogue") as caught:
        resolve_model("acme/Qwen3-Embeding-0.6B", user(hub, tmp_path))
    assert "did you mean Qwen3-Embedding-0.6B" in caught.value.hint
    assert "if it is private, set HF_TOKEN" in caught.value.hint


@pytest.mark.parametrize(
    ("refusal", "error", "advice"),
    [
        ((403, "GatedRepo", "gated"), HubRefused, "ask for access on"),
        ((401, "", "Invalid credentials in Authorization header"), HubRefused, "a valid token"),
        ((403, "", ""), HubRefused, "a valid token"),
        ((503, "", ""), HubUnreachable, "try again later"),
    ],
)
def test_a_refusal_says_what_to_do_and_never_names_the_token(
    tmp_path: Path, hub: LocalHub, refusal: tuple[int, str, str], error: type[ProbeError], advice: str
) -> None:
    hub.refusals[TINY] = refusal
    with pytest.raises(error) as caught:
        resolve_model(TINY, user(hub, tmp_path, HF_TOKEN="hf_topsecret"))
    assert advice in caught.value.hint
    assert "topsecret" not in f"{caught.value} {caught.value.hint}"
    assert hub.asked[0][2]["authorization"] == "Bearer hf_topsecret"


def test_a_gated_repository_shows_its_list_and_not_its_files(tmp_path: Path, hub: LocalHub, folder: Path) -> None:
    hub.refusals[f"{TINY}/config.json"] = (403, "GatedRepo", "")
    with pytest.raises(HubRefused, match="is gated on") as caught:
        resolve_model(TINY, user(hub, tmp_path))
    assert f"ask for access on {hub.url}/{TINY}, then set HF_TOKEN" in caught.value.hint


def test_the_token_does_not_follow_a_redirect_to_another_server(tmp_path: Path, hub: LocalHub, folder: Path) -> None:
    hub.elsewhere = True
    here = user(hub, tmp_path, HF_TOKEN="hf_topsecret")
    assert resolve_model(TINY, here).weight_bytes == resolve_model(str(folder), here).weight_bytes
    assert fetch_model(resolve_model(TINY, here), here).weights_path is not None
    elsewhere = [headers for _, path, headers in hub.asked if path.startswith("/elsewhere/")]
    assert len(elsewhere) >= 2
    assert not any("authorization" in headers for headers in elsewhere)


def test_the_token_is_not_part_of_how_a_hub_is_shown(tmp_path: Path) -> None:
    shown = repr(Hub.of(host({"HF_TOKEN": "hf_topsecret", "HF_HOME": str(tmp_path)})))
    assert "topsecret" not in shown
    assert Hub.of(host({"HF_ENDPOINT": "https://me:pass@mirror/hub/"})).name == "https://mirror/hub"


@pytest.mark.parametrize("raw", [b"<html>", b"[]", b"{}", b'{"id": "../../x", "sha": "main"}', b'{"id": 3}'])
def test_a_server_that_is_no_hub_is_an_error_of_the_hub(tmp_path: Path, hub: LocalHub, raw: bytes) -> None:
    hub.repositories[TINY], hub.raw = {}, raw
    with pytest.raises(HubUnreachable, match="does not answer as a hub does"):
        resolve_model(TINY, user(hub, tmp_path))


def test_hostile_files_of_a_repository_are_an_error_of_the_model(tmp_path: Path, hub: LocalHub) -> None:
    config = minilm()
    here = user(hub, tmp_path)
    hub.put(TINY, write(tmp_path / "a", config | {"model.safetensors": b"\xff" * 64}))
    with pytest.raises(InvalidModel, match="the limit is 10000000"):
        resolve_model(TINY, here)
    hub.put("acme/long", write(tmp_path / "b", config | {"model.safetensors": safetensors(BERT_TENSORS)[:-1]}))
    with pytest.raises(InvalidModel, match="truncated"):
        resolve_model("acme/long", here)
    hub.repositories["acme/huge"] = {"config.json": b" " * ((16 << 20) + 1)}
    with pytest.raises(InvalidModel, match="16777217 bytes"):
        resolve_model("acme/huge", here)
    hub.repositories["acme/gguf"] = {"model.gguf": b"GGUF"}
    with pytest.raises(InvalidModel, match=r"no config\.json"):
        resolve_model("acme/gguf", here)


@pytest.mark.parametrize("name", ["tiny", "qwen3", "x" * 5000, "a/b/c"])
def test_the_hub_is_asked_for_names_with_an_organisation_only(tmp_path: Path, hub: LocalHub, name: str) -> None:
    with pytest.raises(ProbeError):
        resolve_model(name, user(hub, tmp_path))
    assert hub.asked == []


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_is_respected(tmp_path: Path, hub: LocalHub, folder: Path, variable: str) -> None:
    here = user(hub, tmp_path, **{variable: "1"})
    with pytest.raises(UnknownModel):
        resolve_model(TINY, here)
    with pytest.raises(WeightsUnavailable) as caught:
        resolve_model("Qwen3-Embedding-0.6B", here, for_serving=True)
    assert "HF_HUB_OFFLINE keeps the hub out" in caught.value.hint
    assert hub.asked == []


def test_a_machine_without_network_is_told_what_is_here(tmp_path: Path) -> None:
    write(tmp_path / "home/hub/models--acme--cached/snapshots/a", minilm())
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        here = host({"HF_ENDPOINT": f"http://127.0.0.1:{closed.getsockname()[1]}", "HF_HOME": str(tmp_path / "home")})
        with pytest.raises(HubUnreachable, match=r"cannot be reached: .*refused") as caught:
            resolve_model("acme/other", here)
        assert "on this machine there is acme/cached" in caught.value.hint
        with pytest.raises(HubUnreachable) as caught:
            resolve_model("Qwen3-Embedding-0.6B", here, for_serving=True)
    assert "serve acme/cached, which is installed here" in caught.value.hint


def test_a_hub_that_says_nothing_is_given_up_after_the_set_time(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        hub = replace(Hub.of(host({"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path)})), answer_s=0.2)
        with pytest.raises(HubUnreachable):
            hub.listing(TINY)


def test_the_time_that_the_client_takes_to_load_is_not_the_hubs(hub: LocalHub, folder: Path) -> None:
    code = (
        "import sys, threading\n"
        "class Noting:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'huggingface_hub.hf_api':\n"
        "            print(threading.current_thread() is threading.main_thread())\n"
        "sys.meta_path.insert(0, Noting())\n"
        "from vllm_probe.models.hub import Hub\n"
        "from vllm_probe.host.local import LocalHost\n"
        f"Hub.of(LocalHost()).listing({TINY!r})\n"
    )
    env = os.environ | {"HF_ENDPOINT": hub.url, "HF_HUB_ETAG_TIMEOUT": "60"}
    ended = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert ended.stdout == "True\n"


def test_a_name_look_up_that_hangs_is_left_behind() -> None:
    over = Event()
    with pytest.raises(HubUnreachable, match=r"hub did not answer within 0\.05 s"):
        _within(0.05, over.wait, "hub")
    over.set()


def test_the_time_can_be_set_and_the_address_must_be_one() -> None:
    assert Hub.of(host({"HF_HUB_ETAG_TIMEOUT": "30"})).answer_s == 30
    assert Hub.of(host({"HF_HUB_ETAG_TIMEOUT": "soon"})).answer_s == 5
    with pytest.raises(BadUsage, match="HF_ENDPOINT"):
        Hub.of(host({"HF_ENDPOINT": "hub.example"}))


def test_a_cache_that_cannot_be_written_is_said(tmp_path: Path, hub: LocalHub, folder: Path) -> None:
    (tmp_path / "home").write_text("a file where a folder is due")
    with pytest.raises(UnwritableOutput, match="cannot write") as caught:
        Hub.of(user(hub, tmp_path)).download(TINY)
    assert "HF_HOME" in caught.value.hint


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs /dev/full")
def test_a_full_disk_is_said(tmp_path: Path) -> None:
    with pytest.raises(UnwritableOutput, match="No space left"), translated("hub", TINY, tmp_path):  # noqa: SIM117
        with Path("/dev/full").open("wb", buffering=0) as full:
            full.write(b"x")
