"""What negotiate says of the device that it plans for, and of those that it does not plan for."""

import json
from pathlib import Path

from tests.cli.conftest import HOSTS, Cli

CAPABILITIES = Path(__file__).parents[2] / "capabilities"
LOST = ("--replay", HOSTS / "nvidia-lost", "negotiate", "Qwen3-8B", "--engine", "vllm")
NO_DRI = ("--replay", HOSTS / "ctr-14-no-dri", "negotiate", "Qwen3-Embedding-0.6B")


def test_a_dead_device_and_the_descriptor_of_another_are_warned_of(cli: Cli) -> None:
    command = (*LOST, "--capability", "a10", "--device", "0000:01:00.0", "--json")
    warnings = cli(*command, plugins="cpu,nvidia").json()["warnings"]
    assert any(
        line.startswith("0000:01:00.0 (NVIDIA GeForce RTX 3090) cannot be used here now: the GPU is lost")
        and line.endswith("run `vllm-probe doctor`")
        for line in warnings
    )
    other = "the descriptor is of NVIDIA A10, 0000:01:00.0 is NVIDIA GeForce RTX 3090: the rates are those of the other"
    assert f"{other} device, the memory is no more than this one has" in warnings


def test_the_descriptor_of_another_device_is_laid_on_one_that_works(cli: Cli) -> None:
    found = cli(*LOST, "--capability", "a10", "--json", plugins="cpu,nvidia").json()
    assert found["device"] == "0000:41:00.0"
    assert not any("cannot be used" in line for line in found["warnings"])


def test_the_descriptor_of_another_architecture_is_planned_for_alone_unless_the_device_is_named(cli: Cli) -> None:
    command = ("--replay", HOSTS / "nvidia-server", "negotiate", "Qwen3-32B", "--engine", "vllm", "--json")
    found = cli(*command, "--capability", "h200-sxm-141gb", plugins="cpu,nvidia").json()
    assert found["device"] is None
    assert found["budget"]["device_total_bytes"] > 140e9
    (said,) = [line for line in found["warnings"] if "which is not here" in line]
    assert "H200" in said
    device = said.partition("--device ")[2].partition(" ")[0]
    here = cli(*command, "--capability", "h200-sxm-141gb", "--device", device, plugins="cpu,nvidia").json()
    assert here["device"] == device
    assert here["budget"]["device_total_bytes"] < 90e9


def test_a_descriptor_is_laid_on_its_own_device_among_several(cli: Cli, tmp_path: Path) -> None:
    document = json.loads((CAPABILITIES / "rtx-4060-laptop.capability.json").read_text())
    document["device"] |= {"name": "NVIDIA GeForce GTX 1080 Ti", "arch": "sm_61"}
    (tmp_path / "own.json").write_text(json.dumps(document))
    asked = ("negotiate", "Qwen3-4B", "--engine", "vllm", "--capability", tmp_path / "own.json", "--json")
    found = cli("--replay", HOSTS / "nvidia-wsl", *asked, plugins="cpu,nvidia").json()
    assert found["device"] == "dxg:1"
    assert not any("not here" in line for line in found["warnings"])


def test_a_descriptor_that_spells_the_architecture_otherwise_is_laid_on_the_device_of_its_name(
    cli: Cli, tmp_path: Path
) -> None:
    document = json.loads((CAPABILITIES / "rtx-4060-laptop.capability.json").read_text())
    document["device"] |= {"name": "NVIDIA GeForce GTX 1080 Ti", "arch": "SM_61"}
    (tmp_path / "own.json").write_text(json.dumps(document))
    asked = ("negotiate", "Qwen3-4B", "--engine", "vllm", "--capability", tmp_path / "own.json", "--json")
    found = cli("--replay", HOSTS / "nvidia-wsl", *asked, plugins="cpu,nvidia").json()
    assert found["device"] == "dxg:1"
    assert not any("not here" in line for line in found["warnings"])


def test_where_the_architecture_here_is_not_known_the_memory_here_counts(cli: Cli) -> None:
    asked = ("negotiate", "Qwen3-4B", "--engine", "vllm", "--capability", "arc-b580", "--json")
    found = cli("--replay", HOSTS / "nvidia-laptop-wsl", *asked, plugins="cpu,nvidia,intel").json()
    assert found["device"] == "dxg:intel-0"


def test_a_hidden_device_is_warned_of(cli: Cli) -> None:
    masked = ("--replay", HOSTS / "nvidia-hidden")
    devices = cli(*masked, "detect", "--json", plugins="cpu,nvidia").json()["devices"]
    hidden = next(device["id"] for device in devices if not device["visible"])
    command = (*masked, "negotiate", "Qwen3-0.6B", "--engine", "vllm", "--json", "--capability", "a10")
    warnings = cli(*command, "--device", hidden, plugins="cpu,nvidia").json()["warnings"]
    assert any(line.startswith(f"{hidden} (") and "cannot be used here now" in line for line in warnings)


def test_a_healthy_device_with_its_own_descriptor_is_not_warned_of(cli: Cli) -> None:
    command = ("--replay", HOSTS / "ascend-centos7", "negotiate", "Qwen3-0.6B", "--engine", "vllm", "--json")
    warnings = cli(*command, plugins="cpu,ascend").json()["warnings"]
    assert not any("doctor" in line or "descriptor is of" in line for line in warnings)


def test_where_the_cpu_is_planned_for_each_accelerator_that_is_blocked_has_its_line(cli: Cli) -> None:
    command = (*NO_DRI, "--capability", "cpu-zen5-2core")
    said = "0000:03:00.0 (Intel Arc A770) is there and not used: The container was started without /dev/dri"
    assert any(line.startswith(said) for line in cli(*command, "--json", plugins="cpu,intel").json()["warnings"])
    assert f"warning: {said}" in " ".join(cli(*command, plugins="cpu,intel").out.split())


def test_where_nothing_describes_a_device_what_comes_near_is_listed_and_what_is_blocked_said(cli: Cli) -> None:
    on_cpu = cli(*NO_DRI, plugins="cpu,intel")
    assert (on_cpu.code, on_cpu.error) == (3, "no-descriptor")
    assert "such as cpu-zen5-2core, of those that `vllm-probe capability list` shows" in on_cpu.err
    assert "0000:03:00.0 (Intel Arc A770) is there and not used" in on_cpu.err
    on_gpu = cli(*LOST, plugins="cpu,nvidia")
    assert "nothing describes 0000:41:00.0 (NVIDIA GeForce RTX 3090)" in on_gpu.err
    assert "such as a10, rtx-4090, l4, of those" in on_gpu.err


def test_a_descriptor_is_laid_on_the_device_that_detect_picks(cli: Cli) -> None:
    split = ("--replay", HOSTS / "amd-cpx")
    picked = cli(*split, "detect", "--json", plugins="cpu,amd").json()["picked"]["id"]
    asked = (*split, "negotiate", "Qwen3-0.6B", "--engine", "vllm", "--capability", "mi300x", "--json")
    found = cli(*asked, plugins="cpu,amd").json()
    assert found["device"] == picked == "0000:27:00.0"


def test_where_no_device_of_the_descriptor_can_be_used_its_figures_alone_are_planned_with(cli: Cli) -> None:
    asked = ("negotiate", "Qwen3-0.6B", "--engine", "vllm", "--capability", "rtx-4090", "--json")
    found = cli("--replay", HOSTS / "nvidia-taken", *asked, plugins="cpu,nvidia").json()
    assert found["device"] is None
    blocked = [line for line in found["warnings"] if "is there and not used" in line]
    assert [line.partition(" ")[0] for line in blocked] == [f"0000:{bus}:00.0" for bus in ("01", "21", "41", "61")]
    assert "it is bound to vfio-pci" in blocked[0]


def test_an_npu_that_no_build_of_vllm_runs_is_not_called_blocked(cli: Cli) -> None:
    asked = ("negotiate", "Qwen3-0.6B", "--engine", "vllm", "--capability", "arc-b580", "--json")
    warnings = cli("--replay", HOSTS / "intel-laptop", *asked, plugins="cpu,intel").json()["warnings"]
    assert any(line.startswith("0000:03:00.0 (Intel Arc B580) is there and not used") for line in warnings)
    assert not any("NPU" in line for line in warnings)
