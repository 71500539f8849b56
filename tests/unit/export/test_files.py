"""Files of vLLM, Docker, Compose and Kubernetes: every text of a config arrives as it is, and none is run."""

import json
import re
import shlex
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.export.cases import by_vendor, container, made, target
from tests.unit.negotiate.cases import EMBEDDING, MINILM, QWEN3_8B
from vllm_probe.core.errors import BadUsage
from vllm_probe.export.container import vllm_container
from vllm_probe.export.docker import compose_yaml, docker_command
from vllm_probe.export.kubernetes import kubernetes_yaml
from vllm_probe.export.options import settings_of
from vllm_probe.export.text import as_yaml, comment
from vllm_probe.export.vllm import vllm_serve, vllm_yaml

HOSTILE = "/models/a b,c;$(touch x)`id`'\"$HOME\n#\\ü"
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)


def docker_words(text: str) -> list[str]:
    """The words of the one command behind the comments of a script."""
    return shlex.split(re.sub(r"\A(#.*\n)+", "", text).replace(" \\\n  ", " "))


def service_of(text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(text)["services"].popitem()[1]
    return found


@by_vendor
@pytest.mark.parametrize("spec", [MINILM, EMBEDDING, QWEN3_8B], ids=lambda spec: spec.name)
def test_all_four_carry_the_same_options(vendor: str, spec: Any) -> None:
    if vendor == "intel" and spec is QWEN3_8B:
        pytest.skip("it does not fit")
    config = made(vendor, spec, engine_version="0.23.0" if vendor == "ascend" else "0.33.0")
    found = vllm_container(config, target(vendor))
    words = settings_of(config).words()
    values = yaml.safe_load(vllm_yaml(config, "x"))
    assert values.pop("model") == config.model
    assert [word for key, value in values.items() for word in (f"--{key}", str(value))] == words
    assert docker_words(docker_command(found))[-len(words) :] == words
    assert service_of(compose_yaml(found))["command"] == ["serve", config.model, *words]
    deployment = next(iter(yaml.safe_load_all(kubernetes_yaml(found))))
    pod = deployment["spec"]["template"]["spec"]["containers"][0]
    assert pod["args"] == ["serve", config.model, *words]


@given(names)
@example("\n")
@example("a\nb\n\n")
@example("\x85")
def test_any_model_name_arrives_as_it_is(name: str) -> None:
    config = replace(made("cpu", EMBEDDING), model=name, warnings=(name,))
    found = vllm_container(config, target("cpu"))
    assert yaml.safe_load(vllm_yaml(config, "x"))["model"] == name
    assert service_of(compose_yaml(found))["command"][1].replace("$$", "$") == name
    pod = next(iter(yaml.safe_load_all(kubernetes_yaml(found))))["spec"]["template"]["spec"]["containers"][0]
    assert pod["args"][1].replace("$$(", "$(") == name.replace("$$(", "$(")
    words = docker_words(docker_command(found))
    assert words[words.index("serve") + 1] == name


def test_a_hostile_path_is_mounted_and_passed_and_nothing_of_it_is_expanded() -> None:
    found = vllm_container(replace(made("cpu", EMBEDDING), model=HOSTILE), target("cpu"))
    words = docker_words(docker_command(found))
    assert HOSTILE in words
    mount = next(word for word in words if word.startswith("type=bind"))
    assert mount.count('""') == 2  # a quote of the path, doubled as CSV has it, in source and target
    service = service_of(compose_yaml(found))
    assert service["command"][1] == HOSTILE.replace("$", "$$")
    assert service["volumes"][1]["source"] == HOSTILE.replace("$", "$$")
    manifest = next(iter(yaml.safe_load_all(kubernetes_yaml(found))))["spec"]["template"]["spec"]
    assert manifest["containers"][0]["args"][1] == HOSTILE.replace("$(", "$$(")
    assert manifest["volumes"][-1]["hostPath"]["path"] == HOSTILE


def test_the_shell_expands_the_home_folder_and_groups_alone() -> None:
    text = docker_command(container("amd", EMBEDDING))
    assert set(re.findall(r"\$[^\s:]+", text)) == {"$HOME/.cache/huggingface", "$(stat"}
    assert '--group-add "$(stat -c %g /dev/kfd)"' in text


@by_vendor
def test_devices_groups_and_shared_memory_are_those_of_the_plug_in(vendor: str) -> None:
    found, access = container(vendor, EMBEDDING), target(vendor).access
    words = docker_words(docker_command(found))
    given_devices = [words[at + 1] for at, word in enumerate(words) if word == "--device"]
    assert given_devices == list(access.nodes)
    assert ("--ipc" in words) == access.shares_ipc
    assert ("--shm-size" in words) != access.shares_ipc
    service = service_of(compose_yaml(found))
    assert service.get("devices", []) == [f"{node}:{node}" for node in access.nodes]
    assert service.get("ipc") == ("host" if access.shares_ipc else None)
    assert service.get("runtime") == access.runtime
    assert {"HF_TOKEN": None, "VLLM_API_KEY": None}.items() <= service["environment"].items()
    assert service["ports"] == ["127.0.0.1:8000:8000"]


@by_vendor
def test_a_pod_asks_for_its_device_and_never_for_those_of_others(vendor: str) -> None:
    split = container(vendor, QWEN3_8B, pins={"tensor_parallel_size": 2}, device_memory_bytes=64 << 30)
    deployment = next(iter(yaml.safe_load_all(kubernetes_yaml(split))))
    pod = deployment["spec"]["template"]["spec"]["containers"][0]
    if vendor == "cpu":
        assert set(pod["resources"]["requests"]) == {"cpu", "memory"}
    else:
        assert pod["resources"] == {"limits": {split.resource: 2}}
    assert not any(each["name"].startswith("NVIDIA") for each in pod["env"])
    assert (
        deployment["spec"]["selector"]["matchLabels"].items()
        <= deployment["spec"]["template"]["metadata"]["labels"].items()
    )


def test_a_group_that_this_machine_shows_is_its_number() -> None:
    facts = {"/dev/kfd": "993", "/dev/dri/renderD128": None}
    found = vllm_container(made("amd", EMBEDDING), target("amd", groups=facts))
    groups = service_of(compose_yaml(found))["group_add"]
    assert groups[0] == "993"
    assert groups[1].startswith("${GID_RENDERD128:?")


def test_no_vllm_before_0_6_reads_a_file_and_none_before_0_8_3_the_model_in_it() -> None:
    with pytest.raises(BadUsage, match="no --config") as caught:
        vllm_yaml(made("nvidia", QWEN3_8B, engine_version="0.5.5"), "x")
    assert "vllm serve Qwen/Qwen3-8B --dtype" in caught.value.hint
    old = made("nvidia", QWEN3_8B, engine_version="0.8.2")
    assert "model" not in yaml.safe_load(vllm_yaml(old, "x"))
    assert vllm_serve(old, "x.yaml") == "vllm serve Qwen/Qwen3-8B --config x.yaml"
    assert vllm_serve(made("nvidia", QWEN3_8B), "x.yaml") == "vllm serve --config x.yaml"


def test_a_flag_is_true_in_the_file_and_stands_alone_on_the_line() -> None:
    config = made("nvidia", QWEN3_8B, pins={"enforce_eager": True})
    assert yaml.safe_load(vllm_yaml(config, "x"))["enforce-eager"] is True
    assert settings_of(config).words().count("--enforce-eager") == 1
    assert "True" not in settings_of(config).words()


@given(names)
def test_a_comment_is_one_line(text: str) -> None:
    assert len(comment(text).splitlines()) == 1
    assert yaml.safe_load(comment(text)) is None


def test_yaml_has_no_anchors_and_text_of_several_lines_as_a_block() -> None:
    twice = {"a": "b"}
    text = as_yaml({"one": twice, "two": twice, "text": "x\ny\n"})
    assert "&" not in text
    assert "text: |\n  x\n  y\n" in text
    assert json.loads(json.dumps(yaml.safe_load(text))) == {"one": twice, "two": twice, "text": "x\ny\n"}
