"""Which row a device that cannot be used gets, by what its plug-in said of it."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.detect.scenes import HOSTS, full_diagnosis_of, host_of
from vllm_probe.core.device import Device, Finding, Software, Verdict
from vllm_probe.core.values import Kind
from vllm_probe.detect.causes import CAUSES, ROWS, unusable
from vllm_probe.detect.checks.engine import not_covered
from vllm_probe.detect.engine_pick import vllm_choice
from vllm_probe.detect.stack import weigh
from vllm_probe.vendors.nvidia.codes import CUDA, NVML

HEALTHY = [name for name in HOSTS if "healthy" in name]


def _device(reason: str, kind: Kind = "gpu", *, vendor: str = "nvidia", id_: str = "0000:01:00.0") -> Device:
    return Device(
        id=id_, vendor=vendor, kind=kind, driver="nvidia 575.57.08", verdict=Verdict(code="unusable", reason=reason)
    )


def _rows(device: Device, *others: Device, **facts: Any) -> list[Finding]:
    return list(unusable(host_of(**facts), (device, *others), ()))


OTHER = Device(
    id="0000:02:00.0", vendor="nvidia", kind="gpu", usable=True, verdict=Verdict(code="usable", reason="it runs")
)


@pytest.mark.parametrize(
    ("reason", "row"),
    [
        ("it is bound to vfio-pci, for a virtual machine", "DRV-08"),
        ("it is bound to nouveau, which draws and does not compute", "DRV-07"),
        ("no driver is bound to it; run `sudo modprobe nvidia` on the host", "DRV-01"),
        ("no driver is bound to it; run `sudo modprobe amdgpu` on the host", "DRV-13"),
        ("no driver is bound to it; run `sudo modprobe xe` on the host", "DRV-18"),
        ("no driver is bound to it; run `sudo modprobe i915; sudo modprobe xe` on the host", "DRV-18"),
        ("no driver is bound to it; run `sudo modprobe habanalabs` on the host", "PLG-09"),
        (f"{NVML[15].text}; {NVML[15].fix}", "DRV-12"),
        (f"{NVML[16].text}; {NVML[16].fix}", "THM-08"),
        (f"{NVML[18].text}; {NVML[18].fix}", "DRV-03"),
        (f"{NVML[12].text}; {NVML[12].fix}", "LIB-10"),
        (f"{NVML[8].text}; {NVML[8].fix}", "PLG-09"),
        (f"cuInit gives 34: {CUDA[34].text}; {CUDA[34].fix}", "LIB-05"),
        (f"cuInit gives 46: {CUDA[46].text}; {CUDA[46].fix}", "PRT-08"),
        (f"cuInit gives 100: {CUDA[100].text}; {CUDA[100].fix}", "PLG-09"),
        (f"cuInit gives 802: {CUDA[802].text}; {CUDA[802].fix}", "DRV-16"),
        (f"cuInit gives 803: {CUDA[803].text}; {CUDA[803].fix}", "DRV-03"),
        (f"cuInit gives 804: {CUDA[804].text}; {CUDA[804].fix}", "VER-06"),
        (f"cuInit gives 999: {CUDA[999].text}; {CUDA[999].fix}", "DRV-09"),
        ("MIG is on and there is no instance; run `sudo nvidia-smi mig -cgi <profile> -C`", "PRT-01"),
        ("torch 2.9+cu130 cannot run on it: the build cu130 has no kernels for sm_70; run `pip x`", "VER-03"),
        ("torch 2.7+cu126 cannot run on it: the build cu126 has no kernels for sm_120; run `pip x`", "VER-02"),
        ("torch 2.7+rocm6.4 cannot run on it: the build rocm6.4 has no kernels for gfx1103; run `pip x`", "VER-08"),
        ("torch 2.11+cu130 cannot run on it: the build cu130 needs driver 580, this is 570; run `pip x`", "VER-01"),
        (
            "torch 2.9+cu130 cannot run on it: the build cu130 needs CUDA 13, the driver is for CUDA 12.4; run `x`",
            "VER-01",
        ),
        ("torch 2.9+cu128 is a build for NVIDIA devices and cannot run on it; run `pip x`", "VER-09"),
        ("zeInit gives 0x78000003: the driver does not support this GPU; run `x`", "XPU-03"),
        ("zeInit gives 0x70000001: the GPU is lost: it hung, was reset or removed; see `sudo dmesg`", "XPU-04"),
        ("aclInit gives 507033: the device cannot be set up; free it, see `npu-smi info`", "ASC-06"),
        ("aclInit gives 500001: CANN and the driver do not fit together; install the pair", "ASC-05"),
    ],
)
def test_a_verdict_names_the_row_of_its_cause(reason: str, row: str) -> None:
    (finding,) = _rows(_device(reason))
    assert (finding.id, finding.device, finding.severity, finding.disables_device) == (
        row,
        "0000:01:00.0",
        "blocks",
        True,
    )
    assert finding.evidence[1] == reason.partition("; ")[0]


def test_the_command_of_the_verdict_stays_where_it_alone_knows_the_build() -> None:
    (finding,) = _rows(
        _device("torch 2.7+cu126 cannot run on it: the build cu126 has no kernels for sm_120; run `pip x`")
    )
    assert finding.fix[0].command == "pip x"


@pytest.mark.parametrize(
    ("reason", "row", "text"),
    [
        ("torch 2.9+cu126 cannot run on it: the build cu126 has no kernels for sm_37", "VER-03", "llama.cpp"),
        ("torch 2.9+rocm6.4 cannot run on it: the build rocm6.4 has no kernels for gfx803", "VER-08", "llama.cpp"),
        ("torch 2.9+xpu cannot run on it: the build xpu has no kernels for tgl", "VER-02", "llama.cpp"),
        ("torch 2.9+cu128 is a build for NVIDIA devices and cannot run on it", "VER-09", "llama.cpp"),
        (
            "torch 2.4+cu121 cannot run on it: it needs driver 525; update the driver to 525 or newer",
            "VER-01",
            "driver",
        ),
    ],
)
def test_no_command_installs_a_build_where_none_would_help(reason: str, row: str, text: str) -> None:
    (finding,) = _rows(_device(reason))
    assert (finding.id, finding.severity) == (row, "blocks")
    assert not any("pip install" in (fix.command or "") for fix in finding.fix)
    assert text in finding.fix[0].text


def test_a_device_that_no_build_has_kernels_for_is_one_without_a_backend() -> None:
    (finding,) = _rows(_device("no build of torch that is known here has kernels for sm_37"))
    assert (finding.id, finding.severity) == ("OTH-13", "info")
    assert "known here" in finding.cause
    assert "llama.cpp" in finding.fix[0].text


@pytest.mark.parametrize(
    ("arch", "torch"), [("sm_86", "2.9.1+cpu"), ("sm_70", "2.11.0+cu128"), ("sm_86", "2.4.0+cu121"), ("sm_61", "2+xpu")]
)
def test_a_driver_that_is_too_old_for_every_build_is_what_has_to_be_replaced(arch: str, torch: str) -> None:
    gpu = replace(OTHER, arch=arch, driver="nvidia 470.256.02", details={"cuda_version": "11.4"})
    found = weigh(gpu, Software(torch=torch))
    assert found.verdict.reason.endswith("; update the driver to 525 or newer")
    (finding,) = _rows(found)
    assert (finding.id, finding.cause) == ("VER-01", ROWS["VER-01/driver"].cause)
    assert finding.fix[0].command == "sudo ubuntu-drivers install"
    kepler = weigh(replace(gpu, arch="sm_37"), Software(torch=torch))
    assert "driver to" not in kepler.verdict.reason
    (finding,) = _rows(kepler)
    assert "llama.cpp" in finding.fix[0].text


def test_kernels_of_another_gpu_are_given_up_where_a_variable_has_it_take_them() -> None:
    reason = "HSA_X=10.3.0 has it take the kernels of gfx1030, which do not run on gfx1100; run `unset HSA_X`"
    (finding,) = _rows(_device(reason, vendor="amd"))
    assert (finding.id, [fix.command for fix in finding.fix]) == ("VER-08", ["unset HSA_X"])


def test_the_override_is_the_command_where_the_verdict_has_it() -> None:
    reason = "torch 2.9+rocm6.4 cannot run on it: the build rocm6.4 has no kernels for gfx1031"
    (finding,) = _rows(
        _device(f"{reason}; run `export HSA_OVERRIDE_GFX_VERSION=10.3.0`, with which it runs", vendor="amd")
    )
    assert (finding.id, [fix.command for fix in finding.fix]) == ("VER-08", ["export HSA_OVERRIDE_GFX_VERSION=10.3.0"])


@pytest.mark.parametrize(
    ("torch", "cuda", "row", "command"),
    [
        (
            "2.9.1+cpu",
            12060,
            "OTH-10",
            "pip install --force-reinstall torch --index-url https://pypi.jetson-ai-lab.io/jp6/cu126",
        ),
        ("2.9.1+cpu", 12020, "OTH-10", None),
        (
            "2.9.1+cu130",
            12060,
            "VER-01",
            "pip install --force-reinstall torch --index-url https://pypi.jetson-ai-lab.io/jp6/cu126",
        ),
        ("2.9.1+cu130", 12020, "VER-01", None),
        ("2.9.1+cu126", 12020, "OTH-11", None),
        (
            "2.9.1+cu126",
            12060,
            "OTH-11",
            "pip install --force-reinstall torch --index-url https://pypi.jetson-ai-lab.io/jp6/cu126",
        ),
    ],
)
def test_a_jetson_module_gets_the_build_for_its_jetpack(torch: str, cuda: int, row: str, command: str | None) -> None:
    scene = deepcopy(HOSTS["nvidia-jetson-orin"])
    scene["facts"]["files"]["/usr/lib/python3/dist-packages/torch/version.py"] = f"__version__ = '{torch}'"
    scene["facts"]["libs"]["libcuda.so.1"]["calls"]["cuDriverGetVersion"] = cuda
    (finding,) = full_diagnosis_of(scene).findings
    assert (finding.id, finding.device, finding.blocking) == (row, "tegra:0", True)
    assert finding.fix[0].command == command
    assert command or "JetPack" in finding.fix[0].text


@pytest.mark.parametrize(
    ("vllm", "arch", "severity"),
    [("0.31.0", (7, 0), "blocks"), ("0.11.2", (6, 1), "blocks"), ("0.14.0", (7, 0), None), ("0.31.0", (8, 0), None)],
)
def test_an_installed_vllm_that_was_not_built_for_the_gpu_blocks(
    vllm: str, arch: tuple[int, int], severity: str | None
) -> None:
    gpu = replace(OTHER, arch=f"sm_{arch[0]}{arch[1]}", indices={"cuda": 0})
    found = list(not_covered(host_of(), (gpu,), Software(vllm=vllm, torch="2.9.1+cu126")))
    assert [(finding.id, finding.severity) for finding in found] == ([("VER-04", severity)] if severity else [])
    assert not any(finding.disables_device for finding in found)


def test_a_vllm_that_may_be_compiled_for_it_degrades_and_one_that_takes_another_gpu_is_latent() -> None:
    navi = replace(OTHER, vendor="amd", arch="gfx1030", indices={"hip": 0})
    (found,) = not_covered(host_of(), (navi,), Software(vllm="0.11.2+rocm641"))
    assert found.severity == "degrades"
    old = replace(OTHER, id="0000:03:00.0", arch="sm_61", indices={"cuda": 1})
    (found,) = not_covered(host_of(), (replace(OTHER, arch="sm_80", indices={"cuda": 0}), old), Software(vllm="0.31.0"))
    assert (found.device, found.severity, found.blocking) == (old.id, "latent", False)
    assert list(not_covered(host_of(), (old,), Software())) == []


@pytest.mark.parametrize(("arch", "value", "like"), [("gfx1102", "11.0.0", None), ("gfx1031", "10.3.0", "degrades")])
def test_vllm_is_judged_by_the_kernels_that_a_variable_has_the_gpu_take(
    arch: str, value: str, like: str | None
) -> None:
    env = {"HSA_OVERRIDE_GFX_VERSION": value}
    software = Software(vllm="0.11.2+rocm641", torch="2.9.1+rocm6.4")
    gpu = weigh(replace(OTHER, vendor="amd", arch=arch, driver="amdgpu", indices={"hip": 0}), software, env.get)
    assert [finding.severity for finding in not_covered(host_of(), (gpu,), software)] == ([like] if like else [])
    assert vllm_choice((gpu,), software.vllm, "amd").id == gpu.id


def test_doctor_tells_of_a_vllm_that_was_not_built_for_the_gpu() -> None:
    scene = deepcopy(HOSTS["amd-workstation"])
    files = scene["facts"]["files"]
    files["/usr/lib/python3/dist-packages/vllm/_version.py"] = "__version__ = '0.11.2+rocm641'"
    files["/sys/class/kfd/kfd/topology/nodes/1/properties"] = files[
        "/sys/class/kfd/kfd/topology/nodes/1/properties"
    ].replace("gfx_target_version 110000", "gfx_target_version 100300")
    ids = {(finding.id, finding.device) for finding in full_diagnosis_of(scene).findings}
    assert ("VER-04", "0000:03:00.0") in ids


def test_where_no_row_fits_the_verdict_itself_is_cause_and_fix() -> None:
    (finding,) = _rows(
        _device("this process may not use it; start the container with `--device /dev/x`", vendor="acme")
    )
    assert finding.cause == "The acme gpu cannot be used: this process may not use it."
    (fix,) = finding.fix
    assert (fix.where, fix.command) == ("docker", "docker run --device /dev/x IMAGE")
    assert fix.text == "Start the container with `--device /dev/x`."


def test_secure_boot_explains_a_module_that_is_there_and_not_loaded() -> None:
    device = _device("no driver is bound to it; run `sudo modprobe nvidia` on the host")
    files = {
        "/sys/firmware/efi/efivars/SecureBoot-8be4": "!hex 0600000001",
        "/lib/modules/6.2.0/extra/nvidia.ko.xz": "",
    }
    assert [finding.id for finding in _rows(device, files=files)] == ["DRV-02"]
    for path, text in (
        ("/sys/firmware/efi/efivars/SecureBoot-8be4", "!hex 0600000000"),
        *(("/lib/modules/6.2.0/extra/nvidia.ko.xz", "!absent"),),
    ):
        assert [finding.id for finding in _rows(device, files=files | {path: text})] == ["DRV-01"]


@pytest.mark.parametrize(
    "device",
    [
        _device("neither torch nor vLLM has a backend for it", "igpu"),
        _device("no AVX2", "cpu"),
        Device(
            id="x", vendor="acme", kind="gpu", usable=True, verdict=Verdict(code="hidden", reason="a variable hides it")
        ),
        Device(id="x", vendor="acme", kind="npu", verdict=Verdict(code="unknown", reason="nothing was asked")),
        OTHER,
    ],
)
def test_nothing_is_said_of_a_device_that_is_hidden_unknown_usable_or_never_taken(device: Device) -> None:
    assert _rows(device) == []


def test_a_device_whose_parts_compute_and_one_that_is_explained_give_nothing() -> None:
    whole = _device("MIG is on, so only its instances compute: 0000:01:00.0/mig-2.0")
    part = Device(
        id="0000:01:00.0/mig-2.0",
        vendor="nvidia",
        kind="gpu",
        usable=True,
        details={"parent": whole.id},
        verdict=OTHER.verdict,
    )
    assert _rows(whole, part) == []
    known = ROWS["DRV-12"].finding(whole.id, ())
    assert list(unusable(host_of(), (whole,), (known,))) == []


@pytest.mark.parametrize(
    ("reason", "files", "blocks"),
    [
        ("this container was not given /dev/nvidia1; start it with `x`", {"/.dockerenv": ""}, False),
        ("the CUDA driver does not list it; see `sudo dmesg`", {"/.dockerenv": ""}, False),
        ("the CUDA driver does not list it; see `sudo dmesg`", {}, True),
        ("it is bound to vfio-pci, for a virtual machine", {}, False),
        ("it is bound to nouveau, which draws and does not compute", {}, True),
    ],
)
def test_a_device_that_may_have_been_left_out_blocks_only_where_no_other_works(
    reason: str, files: dict[str, str], *, blocks: bool
) -> None:
    (beside,) = _rows(_device(reason), OTHER, files=files)
    assert beside.blocking is blocks
    assert (beside.severity == "blocks") is blocks
    assert _rows(_device(reason), files=files)[0].blocking


def test_a_build_of_torch_for_the_other_card_blocks_nothing_on_a_mixed_machine() -> None:
    amd = _device("torch 2.9+cu128 is a build for NVIDIA devices and cannot run on it; run `pip x`", vendor="amd")
    assert [finding.blocking for finding in _rows(amd, OTHER)] == [False]
    assert [finding.blocking for finding in _rows(amd)] == [True]


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_blocks_on_a_healthy_machine(name: str) -> None:
    assert [finding.id for finding in full_diagnosis_of(HOSTS[name]).findings if finding.blocking] == []


def test_a_device_that_sleeps_is_said_to_be_unexamined() -> None:
    diagnosis = full_diagnosis_of(HOSTS["ctr-healthy-asleep"])
    assert any(line.startswith("0000:03:00.0 (AMD GPU): asleep; this container was") for line in diagnosis.not_checked)


@pytest.mark.parametrize("name", HOSTS)
def test_every_unusable_accelerator_that_is_awake_and_whole_has_a_finding(name: str) -> None:
    diagnosis = full_diagnosis_of(HOSTS[name])
    explained = {finding.device for finding in diagnosis.findings}
    machine = any(finding.device is None for finding in diagnosis.findings)
    for device in diagnosis.devices:
        if (
            device.kind in {"gpu", "npu"}
            and device.verdict.code == "unusable"
            and "compute: " not in device.verdict.reason
        ):
            assert device.id in explained or machine or name == "ctr-healthy-asleep"


def test_each_row_that_a_verdict_names_exists() -> None:
    assert {cause.row for cause in CAUSES} <= set(ROWS)


def _commands(name: str, where: str) -> list[str]:
    fixes = [fix for found in full_diagnosis_of(HOSTS[name]).findings for fix in found.fix if fix.where == where]
    return [fix.command for fix in fixes if fix.command]


def test_a_container_keeps_the_npus_that_it_has_and_is_given_the_one_that_it_lacks() -> None:
    kept = "docker run --device /dev/davinci2 --device /dev/davinci3 --device"
    for command in _commands("ascend-a3-container", "docker"):
        assert command.startswith(f"{kept} /dev/davinciN --device /dev/davinci_manager ")
    reason = "this container was not given the device; start it with `--device /dev/davinci5` too"
    (numbered,) = _rows(_device(reason, "npu", vendor="ascend"), files={"/usr/local/Ascend/driver/lib64/x": ""})
    assert (numbered.fix[0].command or "").startswith("docker run --device /dev/davinci5 --device /dev/davinci_manager")


def test_a_pod_asks_for_the_npu_of_its_kind() -> None:
    assert _commands("ascend-container", "kubernetes") == ["resources: {limits: {huawei.com/Ascend310P: 1}}"]
    assert set(_commands("ascend-a3-container", "kubernetes")) == {"resources: {limits: {huawei.com/Ascend910: 1}}"}


def test_missing_libraries_of_an_npu_are_their_own_evidence_and_repeat_no_command() -> None:
    without, given = full_diagnosis_of(HOSTS["ascend-container"]).findings
    assert (without.id, without.evidence[1]) == ("ASC-01", "/usr/local/Ascend/driver/lib64 is not there")
    assert (given.id, given.evidence[1]) == ("ASC-02", "this container was not given /dev/davinci_manager")
    assert [fix.command for fix in without.fix] == [None]


def test_the_group_of_a_node_is_its_name_else_its_number_and_the_same_throughout() -> None:
    for groups, word in (("", "992"), ("render:x:104:\nvideo:x:992:me\n", "video")):
        scene = HOSTS["amd-xdna"]
        files = scene["facts"]["files"] | {"/etc/group": groups}
        found = full_diagnosis_of(scene | {"facts": scene["facts"] | {"files": files}})
        commands = [fix.command for each in found.findings for fix in each.fix if fix.where == "host"]
        assert commands == [f'sudo usermod -aG {word} "$USER"'] * 2
        (npu,) = (device for device in found.devices if device.kind == "npu")
        assert npu.verdict.reason.endswith(f"; run `{commands[0]}`")
