from collections.abc import Iterator
from dataclasses import replace

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.unit.detect.scenes import HOSTS, STAMP, diagnosis_of, full_diagnosis_of, host_of, manager_of
from vllm_probe.core import codec
from vllm_probe.core.device import Device, Diagnosis, Finding, Verdict
from vllm_probe.core.errors import RecordingIncomplete
from vllm_probe.core.plugin import Check, VendorPlugin
from vllm_probe.core.rows import Row
from vllm_probe.core.scene import Scene
from vllm_probe.core.schema import violations
from vllm_probe.core.system import Host
from vllm_probe.detect.doctor import diagnose
from vllm_probe.detect.verdict import judge
from vllm_probe.host.record import RecordingHost
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.cpu import PLUGIN
from vllm_probe.vendors.plugins import discover_plugins
from vllm_probe.vendors.registry import PortableDeviceManager

CPUINFO = {"/proc/cpuinfo": "processor\t: 0\nflags\t: sse4_2 avx avx2\n"}
DEVICE = Device(id="gpu0", vendor="acme", kind="gpu", usable=True, verdict=Verdict(code="usable", reason="fine"))


def _raising(_host: Host, _devices: tuple[Device, ...], _log: str) -> Iterator[Finding]:
    raise ZeroDivisionError("division by zero")
    yield


def _unrecorded(_host: Host, _devices: tuple[Device, ...], _log: str) -> Iterator[Finding]:
    raise RecordingIncomplete("the recording does not hold `read /proc/x`", hint="record it")
    yield


CHECKS = (Check(ids=("ACME-01", "ACME-02"), run=_raising), Check(ids=("ACME-03",), run=_unrecorded))
ACME = VendorPlugin(
    api_version=1,
    name="acme",
    device_types=("acme",),
    probe="vllm_probe.vendors.cpu.probe:probe",
    checks=f"{__name__}:CHECKS",
)


def _diagnosed(host: ReplayHost, log: str | None = None) -> Diagnosis:
    return diagnose(host, manager_of(host), STAMP, log)


@pytest.mark.parametrize("name", ["cpu-04-fractional-quota-v1", "ctr-14-no-dri"])
def test_the_document_of_a_recorded_host_stays_as_it_is(name: str, snapshot: SnapshotAssertion) -> None:
    assert codec.dumps(diagnosis_of(HOSTS[name])) == snapshot


@pytest.mark.parametrize("name", HOSTS)
def test_the_document_is_valid(name: str) -> None:
    assert violations("doctor", codec.to_json(diagnosis_of(HOSTS[name]))) == ()


@pytest.mark.parametrize("name", HOSTS)
def test_what_the_doctor_records_is_all_that_it_asks(name: str) -> None:
    host = ReplayHost(codec.from_json(Scene, HOSTS[name]))
    transcripts = host.transcripts()
    recorder = RecordingHost(host)
    first = diagnose(recorder, PortableDeviceManager(recorder, (PLUGIN,)), STAMP, None, transcripts)
    recorded = recorder.scene()
    assert recorded.complete
    again = ReplayHost(recorded)
    second = diagnose(again, manager_of(again), STAMP, None, transcripts)
    assert [finding.id for finding in second.findings] == [finding.id for finding in first.findings]
    assert second.devices == first.devices


def test_a_card_kept_from_a_container_that_has_another_blocks_nothing() -> None:
    (kept,) = diagnosis_of(HOSTS["amd-cgroup"]).findings
    assert (kept.id, kept.device, kept.severity, kept.blocking) == ("CTR-12", "0000:83:00.0", "latent", False)
    (alone,) = diagnosis_of(HOSTS["ctr-12-no-kfd"]).findings
    assert (alone.id, alone.severity, alone.blocking) == ("CTR-12", "blocks", True)


def test_a_container_that_has_a_part_of_a_card_only_is_not_blocked() -> None:
    card = "/sys/bus/pci/devices/0000:05:00.0"
    files = {
        "/.dockerenv": "",
        "/dev/kfd": "!chr 235:0 0666 0:0",
        "/dev/dri/renderD130": "!chr 226:130 0666 0:0",
        f"{card}/class": "0x120000",
        f"{card}/vendor": "0x1002",
        f"{card}/device": "0x74a1",
        f"{card}/driver": "!link ../../../bus/pci/drivers/amdgpu",
        f"{card}/current_compute_partition": "QPX\n",
        f"{card}/drm/renderD128/dev": "226:128\n",
        "/sys/class/kfd/kfd/topology/nodes/3/properties": "simd_count 304\nlocation_id 1282\ndomain 0\n"
        "drm_render_minor 130\ngfx_target_version 90402\n",
    }
    libs = {"libhsa-runtime64.so.1": {"load": "ok", "calls": {"hsa_init": 0}}}
    diagnosis = full_diagnosis_of({"facts": {"files": files, "libs": libs}})
    (kept,) = [finding for finding in diagnosis.findings if finding.id == "CTR-12"]
    assert (kept.device, kept.severity, kept.blocking) == ("0000:05:00.0", "latent", False)
    whole, part = (device for device in diagnosis.devices if device.vendor == "amd")
    assert "so only its parts compute: 0000:05:00.0/xcp-2" in whole.verdict.reason
    assert (part.id, part.usable) == ("0000:05:00.0/xcp-2", True)
    del files["/dev/dri/renderD130"]
    without_node = full_diagnosis_of({"facts": {"files": files, "libs": libs}})
    assert [each.severity for each in without_node.findings if each.id == "CTR-12"] == ["blocks"]


def test_a_check_that_raises_costs_its_own_rows_only() -> None:
    host = host_of(files=CPUINFO)
    manager = PortableDeviceManager(host, (replace(ACME, probe=PLUGIN.probe), PLUGIN))
    diagnosis = diagnose(host, manager, STAMP, "Illegal instruction (core dumped)")
    found = {finding.id: finding for finding in diagnosis.findings}
    assert {"PLG-08", "REC-01", "CPU-01"} <= set(found)
    assert "ACME-01, ACME-02" in found["PLG-08"].cause
    assert "ZeroDivisionError: division by zero" in found["PLG-08"].cause
    assert "test_doctor.py" in found["PLG-08"].evidence[0]
    assert "`read /proc/x`" in found["REC-01"].cause


def test_findings_are_sorted_by_severity_then_id_then_device() -> None:
    keys = [
        (("blocks", "degrades", "latent", "info").index(finding.severity), finding.id, finding.device or "")
        for finding in _diagnosed(
            host_of(files=CPUINFO, env={"OMP_NUM_THREADS": "8"}),
            'could not select device driver "" with capabilities: [[gpu]]\nget_mempolicy: Operation not permitted\n'
            "numa\nunresolvable CDI devices nvidia.com/gpu=0\nIllegal instruction",
        ).findings
    ]
    assert len(keys) >= 4
    assert keys == sorted(keys)


def test_the_fix_that_can_be_typed_here_comes_first() -> None:
    inside = diagnosis_of(HOSTS["ctr-11-selinux-amd"]).findings[0]
    assert inside.fix[0].where == "podman"
    outside = diagnosis_of(HOSTS["ctr-13-kfd-group"]).findings[0]
    assert outside.fix[0].where == "host"
    assert {fix.where for fix in outside.fix} == {"host", "docker", "podman", "kubernetes", "lxc"}


def test_a_pasted_log_alone_disables_no_device_of_this_machine() -> None:
    diagnosis = _diagnosed(host_of(files=CPUINFO), "x\nUnable to open /dev/kfd read-write: Permission denied\n")
    (finding,) = diagnosis.findings
    assert (finding.id, finding.blocking, finding.disables_device, finding.device) == ("CTR-13", True, False, None)
    assert finding.evidence == ("log: Unable to open /dev/kfd read-write: Permission denied",)
    assert 'sudo usermod -aG "$(stat -c %G /dev/kfd)" "$USER"' in [fix.command for fix in finding.fix]
    assert all(device.usable for device in diagnosis.devices)


@pytest.mark.parametrize(
    "text", ["devices.allow", "error stat'ing file /", "failed to add device rules", "compiled with avx", "path "]
)
def test_a_hostile_log_is_read_in_linear_time(text: str) -> None:
    assert _diagnosed(host_of(files=CPUINFO), text * 100_000).findings == ()


@pytest.mark.parametrize(
    ("log", "said"),
    [("", "the log: it is empty"), (" \n", "the log: it is empty"), ("Segmentation fault", "the log: n")],
)
def test_a_log_that_explains_nothing_is_said_beside_what_the_machine_shows(log: str, said: str) -> None:
    scene = HOSTS["ctr-02-snap-docker"]
    host = ReplayHost(codec.from_json(Scene, scene))
    diagnosis = diagnose(host, manager_of(host), STAMP, log, host.transcripts())
    assert diagnosis.not_checked[0].startswith(said)
    assert diagnosis.findings == diagnosis_of(scene).findings
    assert not any("the log" in line for line in diagnosis_of(scene).not_checked)


def test_a_log_that_is_explained_is_not_among_what_was_not_checked() -> None:
    log = "x\n\x1b[31mUnable to open /dev/kfd read-write: Permission denied\n"
    assert _diagnosed(host_of(files=CPUINFO), log).not_checked == ()


def test_a_log_adds_its_line_to_the_row_that_a_check_found() -> None:
    (finding,) = diagnosis_of(HOSTS["ctr-02-snap-docker"]).findings
    assert finding.id == "CTR-02"
    assert finding.evidence[-1].startswith("log: could not select device driver")


def test_a_log_turns_what_would_bite_later_into_what_blocks_now() -> None:
    scene = HOSTS["ctr-01-no-toolkit"]
    quiet = {
        **scene,
        "facts": {
            **scene["facts"],
            "commands": {k: v for k, v in scene["facts"]["commands"].items() if "run" not in k},
        },
    }
    assert [finding.severity for finding in diagnosis_of(quiet).findings] == ["latent"]
    assert [(finding.severity, finding.blocking) for finding in diagnosis_of(scene).findings] == [("blocks", True)]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"/dev/kmsg": "!chr 1:11 0640 0:0 EPERM"}, "kernel messages: /dev/kmsg"),
        ({"/var/run/docker.sock": "!other 0 0660 0:999 EACCES"}, "docker's runtimes"),
        ({"/.dockerenv": ""}, "container runtimes and CDI specifications"),
    ],
)
def test_what_could_not_be_looked_at_is_said(files: dict[str, str], said: str) -> None:
    assert any(line.startswith(said) for line in _diagnosed(host_of(files=CPUINFO | files)).not_checked)
    assert _diagnosed(host_of(files=CPUINFO)).not_checked == ()


def test_an_accelerator_that_no_plug_in_examines_and_one_asleep_are_said() -> None:
    assert diagnosis_of(HOSTS["ctr-healthy-host"]).not_checked == (
        "0000:01:00.0 (NVIDIA GPU): no plug-in installed here examines it",
    )
    assert any(": asleep, and" in line for line in diagnosis_of(HOSTS["ctr-healthy-asleep"]).not_checked)


@pytest.mark.parametrize(
    ("vendor", "device", "class_", "severity"),
    [
        ("0x1ded", "0x6001", "0x120000", "degrades"),
        ("0x1e36", "0x0033", "0x120000", "info"),
        ("0x1a03", "0x2000", "0x030000", None),
    ],
)
def test_an_accelerator_of_a_vendor_that_no_plug_in_knows_is_not_well(
    vendor: str, device: str, class_: str, severity: str | None
) -> None:
    bus = "/sys/bus/pci/devices/0000:01:00.0"
    files = {f"{bus}/vendor": vendor, f"{bus}/device": device, f"{bus}/class": class_}
    found = full_diagnosis_of({"facts": {"files": CPUINFO | files}}).findings
    said = [(each.id, each.severity, each.blocking, each.device) for each in found if each.id == "PLG-09"]
    assert said == ([] if severity is None else [("PLG-09", severity, False, "0000:01:00.0")])
    assert all("nothing here can judge or use it" in each.cause for each in found if each.id == "PLG-09")


def test_a_device_that_only_the_bus_was_asked_about_is_said_not_to_be_checked() -> None:
    host = ReplayHost(codec.from_json(Scene, HOSTS["iluvatar-mr-v100"]))
    diagnosis = diagnose(host, PortableDeviceManager(host, discover_plugins(None).plugins), STAMP)
    (line,) = diagnosis.not_checked
    assert line.startswith("0000:15:00.0 (Iluvatar MR-V100): the driver iluvatar is bound; whether its library,")
    assert [device.verdict.code for device in diagnosis.devices] == ["unknown", "usable"]


def test_a_finding_that_disables_a_device_makes_it_unusable_and_only_that() -> None:
    row = Row("X-01", "blocks", cause="It is broken.", disables_device=True)
    judged = judge(DEVICE, (row.finding("gpu0", ()), row.finding("gpu1", ())))
    assert (judged.usable, judged.verdict) == (
        False,
        Verdict(code="unusable", reason="It is broken.", findings=("X-01",)),
    )
    assert judge(DEVICE, (row.finding("gpu1", ()),)) is DEVICE


def test_a_degrading_finding_limits_a_device_a_latent_one_is_only_noted() -> None:
    slow = Row("X-00", "degrades", cause="degrades.")
    later = Row("X-01", "latent", cause="latent.")
    note = Row("X-02", "info", cause="info.")
    stops = Row("X-03", "blocks", cause="blocks.")
    judged = judge(DEVICE, (later.finding("gpu0", ()), slow.finding("gpu0", ())))
    assert (judged.usable, judged.verdict.code, judged.verdict.reason) == (True, "limited", "degrades.")
    assert judged.verdict.findings == ("X-00", "X-01")
    assert judge(DEVICE, (later.finding("gpu0", ()),)).verdict == Verdict(
        code="usable", reason="fine", findings=("X-01",)
    )
    assert judge(DEVICE, (note.finding("gpu0", ()),)) is DEVICE
    engine = judge(DEVICE, (stops.finding("gpu0", ()),))
    assert (engine.usable, engine.verdict.code) == (True, "limited")


def test_a_device_that_nothing_here_asks_has_the_check_to_make_by_hand() -> None:
    first, *_ = full_diagnosis_of(HOSTS["ascend-910b"]).not_checked
    assert "was not checked (libdcmi.so: cannot open shared object file: No such file or directory; there is" in first
    assert "; run `npu-smi info`: where that fails or is not there, install the driver's libraries and tools" in first
    (board,) = full_diagnosis_of(HOSTS["tenstorrent-n150"]).not_checked
    assert "; run `tt-smi -s`: where that fails" in board
    asleep = full_diagnosis_of(HOSTS["intel-asleep"]).not_checked
    assert not any("; run `" in each for each in asleep)
