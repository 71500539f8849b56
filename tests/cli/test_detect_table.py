"""What `detect` prints, as a person reads it in a terminal of 80 or 120 columns."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.unit.detect.scenes import STAMP
from vllm_probe.cli.render.console import as_text
from vllm_probe.cli.render.inventory import render
from vllm_probe.core.device import Device, DeviceMemory, Inventory, Software, Verdict
from vllm_probe.detect.engine_pick import vllm_choice
from vllm_probe.detect.select import default_choice
from vllm_probe.detect.stack import weigh

GIB = 1 << 30
MASKED = "the environment variable CUDA_VISIBLE_DEVICES=0 hides it; run `unset CUDA_VISIBLE_DEVICES`"


def card(id_: str, vendor: str, name: str, arch: str, total: float, free: float, **more: Any) -> Device:
    memory = DeviceMemory(reported_bytes=int(total * GIB), usable_bytes=int(free * GIB), kind="dedicated")
    about = {
        "verdict": Verdict(code="usable", reason="its driver can be initialised"),
        "usable": True,
        "memory": memory,
    }
    return Device(id=id_, vendor=vendor, name=name, arch=arch, adapter=vendor, **{"kind": "gpu", **about, **more})


CPU = card(
    "cpu0",
    "cpu",
    "AMD EPYC 9654 96-Core Processor",
    "avx512_bf16",
    755.3,
    731.9,
    kind="cpu",
    verdict=Verdict(code="usable", reason="96 threads, avx512_bf16, 731.90 GiB free"),
    memory=DeviceMemory(reported_bytes=811_000_000_000, usable_bytes=785_000_000_000, kind="shared"),
    details={"physical_cores": 96, "threads": 96},
)
LAPTOP = card("dxg:0", "nvidia", "NVIDIA GeForce RTX 4060 Laptop GPU", "sm_89", 8, 6.8, driver="nvidia 566.36")
EIGHT = tuple(
    card(
        f"0000:{bus:02x}:00.0",
        "nvidia",
        "NVIDIA H100 80GB HBM3",
        "sm_90",
        79.6,
        79.1 if position else 12.4,
        driver="nvidia 550.90.07",
        indices={"nvml": position, "cuda": position, "drm_card": position + 1, "drm_render": 128 + position},
    )
    for position, bus in enumerate((0x19, 0x3B, 0x4C, 0x5D, 0x9B, 0xBB, 0xCB, 0xDB))
)
MIXED = (
    card(
        "0000:00:02.0",
        "intel",
        "Intel UHD Graphics 770",
        "adl",
        31.2,
        20,
        kind="igpu",
        usable=False,
        verdict=Verdict(code="unusable", reason="Level Zero does not list it; update the compute runtime"),
        memory=DeviceMemory(reported_bytes=31 * GIB, usable_bytes=20 * GIB, kind="shared"),
        indices={"drm_card": 0, "drm_render": 128},
    ),
    card("0000:03:00.0", "amd", "AMD Radeon RX 7900 XTX", "gfx1100", 24, 22.8, indices={"hip": 0, "kfd": 1}),
    replace(EIGHT[3], id="0000:41:00.0", visible=False, verdict=Verdict(code="hidden", reason=MASKED), indices={}),
    card("0000:81:00.0", "ascend", "Huawei Ascend 910B3", "910b3", 64, 60.9, kind="npu", indices={"npu": 0}),
    card("0000:a1:00.0/chip-1", "ascend", "Huawei Ascend 910C", "910_93", 64, 60.9, kind="npu", indices={"npu": 1}),
    Device(
        id="0000:c1:00.0",
        vendor="hygon",
        kind="gpu",
        verdict=Verdict(code="unknown", reason="the driver hycu is bound; whether torch can use it was not checked"),
    ),
)
CASES = {
    "one": ((LAPTOP,), Software(kernel="5.15.167.4-microsoft-standard-WSL2", container="wsl")),
    "eight": (
        (*EIGHT, CPU),
        Software(python="3.12.3", torch="2.9.0+cu128", vllm="0.17.0", kernel="5.15.0-131-generic"),
    ),
    "mixed": ((*MIXED, CPU), Software(python="3.11.2", kernel="6.8.0-60-generic")),
    "none": ((), Software(kernel="6.8.0-60-generic")),
}


def inventory(case: str) -> Inventory:
    found, software = CASES[case]
    devices = tuple(weigh(device, software) for device in found)
    return Inventory(
        schema_version="1.0",
        **STAMP.header(),
        platform="linux x86_64",
        software=software,
        devices=devices,
        picked=default_choice(devices),
        vllm_pick=vllm_choice(devices, software.vllm, "nvidia" if software.vllm else None),
        unknown={
            pointer: reason
            for i, device in enumerate(devices)
            for pointer, reason in (
                (f"/devices/{i}/memory/used_bytes", "its driver does not tell it"),
                (f"/devices/{i}/descriptor", "no capability document serves it; `vllm-probe bench` writes one"),
            )
            if device.kind != "cpu"
        },
    )


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("case", CASES)
def test_the_table_reads_well(
    case: str, columns: int, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = as_text(render(inventory(case)))
    assert text == snapshot
    lines = text.splitlines()
    assert [line for line in lines if len(line) > columns and not line.startswith("  pip install")] == []
    assert "\u2026" not in text
    for device in inventory(case).devices:
        row = next(line for line in lines if line.startswith(device.id))
        assert device.verdict.code in row
        assert (device.arch or "?") in row


def test_a_command_is_printed_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert "  pip install torch --index-url https://download.pytorch.org/whl/cu128\n" in as_text(
        render(inventory("one"))
    )


def test_what_a_machine_has_not_is_not_among_what_is_not_known() -> None:
    absent = {
        "/software/torch": "not installed",
        "/software/vllm": "not installed",
        "/devices/0/driver": "it needs none",
    }
    found = replace(inventory("none"), devices=(CPU,), unknown=absent)
    assert "not known" not in as_text(render(found))
    gpu = replace(found, devices=(weigh(MIXED[0], found.software),))
    assert "driver: it needs none" in as_text(render(gpu))


@pytest.mark.parametrize("page", ["README.md", "docs/guides/getting-started.md"])
def test_the_sample_of_a_page_is_what_is_printed(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / page).read_text()
    sample = text.partition("$ vllm-probe detect\n")[2].partition("```")[0].splitlines()[:6]
    free = re.search(r"([0-9.]+) of 23.54 GiB", sample[2])
    assert free
    cpu = Device(
        id="cpu0",
        vendor="cpu",
        kind="cpu",
        name="AMD EPYC",
        arch="avx512_bf16",
        memory=DeviceMemory(
            reported_bytes=round(23.54 * 2**30), usable_bytes=round(float(free[1]) * 2**30), kind="shared"
        ),
        verdict=Verdict(code="usable", reason=f"2 threads, avx512_bf16, {free[1]} GiB free"),
        details={"physical_cores": 2, "threads": 2},
    )
    monkeypatch.setenv("COLUMNS", "80")
    printed = as_text(render(replace(inventory("none"), devices=(cpu,)))).splitlines()[:6]
    assert [line.rstrip() for line in printed] == sample


def test_what_holds_of_many_devices_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    text = as_text(render(inventory("eight")))
    assert text.count("its driver can be initialised") == 1
    assert text.count("its driver does not tell it") == 1
