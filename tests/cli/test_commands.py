"""What the commands do to files, and to each other."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import DOCUMENTS, HOSTS, Cli
from vllm_probe import api
from vllm_probe.cli.commands.bench import disturbance
from vllm_probe.core.capability import Measurement
from vllm_probe.core.errors import Interrupted, MissingExtra
from vllm_probe.core.extras import extra_command
from vllm_probe.core.files import read_json
from vllm_probe.core.schema import schema_text, violations
from vllm_probe.core.system import Platform
from vllm_probe.host.children import LocalChild
from vllm_probe.host.local import LocalHost
from vllm_probe.vendors.descriptors import load_capability

ON_ASCEND = ("negotiate", "--model", "Qwen3-Embedding-0.6B", "--capability", "ascend.json", "--engine", "vllm")
TOO_LARGE = ("negotiate", "--model", "GLM-5.3", "--capability", "ascend.json", "--device-memory", "24GiB")


def test_a_schema_is_printed_as_it_is_shipped(cli: Cli) -> None:
    assert cli("schema", "runtime").out == schema_text("runtime")


def test_detect_looks_for_one_vendor_only(cli: Cli) -> None:
    devices = cli("detect", "--vendor", "null", "--json", plugins="cpu,null").json()["devices"]
    assert [device["id"] for device in devices] == ["null0"]


def test_doctor_exits_with_1_exactly_when_a_finding_blocks(cli: Cli) -> None:
    blocked = {"cpu-healthy": 0, "ctr-12-no-kfd": 1, "cpu-06-numa-warning": 0, "cpu-01-no-avx2": 1}
    for scene, code in blocked.items():
        ended = cli("--replay", HOSTS / scene, "doctor", "--json")
        findings = ended.json()["findings"]
        assert ended.code == code == int(any(finding["blocking"] for finding in findings))
        assert [finding["blocking"] for finding in findings] == [each["severity"] == "blocks" for each in findings]


def test_doctor_explains_a_log(cli: Cli) -> None:
    Path("log.txt").write_text(
        "ImportError: libGL.so.1: cannot open shared object file\nIllegal instruction (core dumped)\n"
    )
    plain, explained = (cli("doctor", "--json", *more).json()["findings"] for more in ((), ("--log", "log.txt")))
    assert len(explained) > len(plain)
    Path("log.txt").write_text("my program stopped\n")
    assert "the log: nothing in it is known here" in cli("doctor", "--log", "log.txt", width=200).out


def test_doctor_records_a_machine_that_replays_and_never_overwrites_one(cli: Cli) -> None:
    assert cli("doctor", "--record", "recorded").code == 0
    first = Path("recorded/scene.json").read_text()
    assert violations("scene", json.loads(first)) == ()
    assert json.loads(first)["complete"]
    replayed = cli("--replay", "recorded", "doctor", "--json")
    assert replayed.code == 0
    assert [finding["id"] for finding in replayed.json()["findings"] if finding["id"].startswith(("PLG", "REC"))] == []
    assert cli("--replay", "recorded", "detect").code == 0
    assert cli("--replay", "recorded", *ON_ASCEND, "--json").code == 0
    assert cli("doctor", "--record", "recorded").error == "unwritable-output"
    assert Path("recorded/scene.json").read_text() == first


def test_negotiate_writes_runtime_json_and_json_alone_writes_nothing(cli: Cli) -> None:
    assert cli(*ON_ASCEND, "--json").code == 0
    assert not Path("runtime.json").exists()
    ended = cli(*ON_ASCEND)
    assert ended.code == 0
    assert "saved runtime.json" in ended.err
    assert violations("runtime", read_json(Path("runtime.json"))) == ()


def test_a_model_that_does_not_fit_prints_everything_and_leaves_files_alone(cli: Cli) -> None:
    Path("runtime.json").write_text("mine")
    ended = cli(*TOO_LARGE, "--json", "--output", "runtime.json")
    assert (ended.code, ended.error) == (1, "does-not-fit")
    assert ended.json()["budget"]["verdict"] == "oom"
    assert ended.json()["alternatives"]
    assert f"({ended.json()['budget']['requested_bytes']} bytes)" in ended.err
    assert cli(*TOO_LARGE).code == 1
    assert Path("runtime.json").read_text() == "mine"


@pytest.mark.parametrize(
    ("option", "value", "key"),
    [
        ("--dtype", "bfloat16", "dtype"),
        ("--quantization", "none", "quantization"),
        ("--kv-cache-dtype", "bfloat16", "kv_cache_dtype"),
        ("--max-model-len", 1024, "max_model_len"),
        ("--block-size", 64, "block_size"),
        ("--max-num-seqs", 3, "max_num_seqs"),
        ("--max-num-batched-tokens", 2048, "max_num_batched_tokens"),
        ("--gpu-memory-utilization", 0.5, "gpu_memory_utilization"),
        ("--tensor-parallel-size", 2, "tensor_parallel_size"),
        ("--pipeline-parallel-size", 2, "pipeline_parallel_size"),
    ],
)
def test_every_parameter_can_be_pinned(cli: Cli, option: str, value: Any, key: str) -> None:
    config = cli(*ON_ASCEND, "--device-memory", "32GiB", option, value, "--json").json()
    assert config[key] == value
    assert [decision["key"] for decision in config["decisions"] if decision["pinned"]] == [key]


def test_enforce_eager_turns_compiling_off(cli: Cli) -> None:
    assert cli(*ON_ASCEND, "--json").json()["compile"]["enabled"]
    assert not cli(*ON_ASCEND, "--enforce-eager", "--json").json()["compile"]["enabled"]


def test_validate_warns_of_misspelt_keys_and_says_yes(cli: Cli) -> None:
    assert cli("capability", "validate", "null.json").err == ""
    document = read_json(Path("ascend.json"))
    document["memory"]["bandwith_gb_s"] = 1
    Path("misspelt.json").write_text(json.dumps(document))
    ended = cli("capability", "validate", "misspelt.json")
    assert ended.code == 0
    assert ended.err == ("warning: /memory/bandwith_gb_s: unknown key, left out; did you mean bandwidth_gb_s?\n")
    document["compute_units"]["fp99"] = 1
    Path("misspelt.json").write_text(json.dumps(document))
    assert cli("capability", "validate", "misspelt.json").error == "not-valid"


def test_swapping_the_descriptor_changes_the_config(cli: Cli) -> None:
    found = cli("negotiate", "--model", "Qwen3-Embedding-0.6B", "--capability", "null.json", "--json").json()
    other = cli(*ON_ASCEND, "--json").json()
    assert (found["dtype"], other["dtype"]) == ("bfloat16", "float16")
    assert (found["alignment_bytes"], other["alignment_bytes"]) == (64, 256)


def test_swapping_a_file_on_the_search_path_is_all_that_it_takes(cli: Cli) -> None:
    swapped = read_json(Path("null.json")) | {"host_fingerprint": None}
    chosen = []
    for rate, alignment in ((50, 128), (5000, 4096)):
        swapped["compute_units"]["fp32"] = {"throughput_gflops": rate}
        swapped["memory"]["alignment_bytes"] = alignment
        Path("mine.capability.json").write_text(json.dumps(swapped))
        config = cli(
            "negotiate", "--model", "Qwen3-Embedding-0.6B", "--device", "null", "--json", plugins="null"
        ).json()
        assert config["capability"] == "mine.capability.json"
        chosen.append((config["dtype"], config["alignment_bytes"]))
    assert chosen == [("bfloat16", 128), ("float32", 4096)]


def test_the_list_says_which_descriptor_serves_a_device_here(cli: Cli) -> None:
    Path("mine.capability.json").write_text(json.dumps(read_json(Path("null.json")) | {"host_fingerprint": None}))
    listed = cli("capability", "list", "--json", plugins="null").json()
    assert [each["name"] for each in listed if each["serves"]] == ["mine"]
    assert (listed[0]["place"], listed[0]["path"]) == ("current folder", "mine.capability.json")
    assert {"rtx-4090", "ascend-910b3"} <= {each["name"] for each in listed if each["place"] == "bundled"}


def test_a_shipped_descriptor_serves_the_card_of_its_name_on_a_replay(cli: Cli) -> None:
    options = ("--replay", HOSTS / "nvidia-server", "negotiate", "--model", "Qwen3-0.6B", "--engine", "vllm", "--json")
    config = cli(*options, "--device", "nvidia:0", plugins="nvidia").json()
    assert Path(config["capability"]).name == "a100-sxm-80gb.capability.json"
    assert config["budget"]["device_total_bytes"] == 80 << 30


def test_a_difference_has_both_values_and_their_ratio_and_is_no_failure(cli: Cli) -> None:
    ended = cli("capability", "diff", "rtx-4090", "h100-sxm-80gb", "--json")
    assert ended.code == 0
    changes = {change["pointer"]: change for change in ended.json()["changes"]}
    bandwidth = changes["/memory/bandwidth_gb_s"]
    assert (bandwidth["old"], bandwidth["new"], bandwidth["ratio"]) == (1008, 3350, 3.32341)
    assert cli("capability", "diff", "rtx-4090", "rtx-4090", "--json").json()["changes"] == []
    assert cli("capability", "diff", "rtx-4090", "rtx-4091").error == "unknown-name"


def test_bench_writes_keeps_and_finds_its_result(cli: Cli, tmp_path: Path) -> None:
    ended = cli("bench", "--device", "null", "--emit", "measured.json", "--json", plugins="cpu,null")
    assert ended.code == 0
    assert Path("measured.json").read_text() == ended.out
    assert violations("capability", ended.json()) == ()
    assert list(Path.cwd().glob("*.partial")) == []
    (kept,) = (tmp_path / "home/.local/state/vllm-probe").glob("*/null0.capability.json")
    assert kept.read_text() == ended.out
    assert "used: describes the device" in cli("capability", "path", "--device", "null", width=200, plugins="null").out
    inventory = cli("detect", "--json", plugins="null").json()
    assert inventory["devices"][0]["descriptor"] == str(kept)


def test_bench_says_when_repetitions_differed_and_how_to_name_the_document(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = cli("bench", "--device", "null", "--emit", "capability.json", plugins="null").err.splitlines()
    assert quiet[-1] == "saved capability.json; next: vllm-probe negotiate --model MODEL"
    assert not any("busy" in line for line in quiet)
    Path("script.json").write_text('{"noise_pct": 60}')
    monkeypatch.setenv("VLLM_PROBE_NULL_SCRIPT", "script.json")
    doubts, saved = cli("bench", "--device", "null", "--emit", "noisy.json", plugins="null").err.splitlines()[-2:]
    assert saved.endswith("negotiate --model MODEL --capability noisy.json")
    assert re.fullmatch(
        r"null0: the machine was busy: in \d+ of 23 tests repetitions differed, so these values are uncertain; "
        "repeat when idle",
        doubts,
    )
    ended = cli("bench", "--device", "all", "--only", "memory", "--emit", "folder", plugins="null")
    assert ended.err.endswith("--capability folder/null0.capability.json\n")


def test_tests_that_others_took_the_processor_from_are_said_to_be_too_low() -> None:
    about = Measurement(source="measured", status="throttled", samples=3)
    measurements = {"/memory/read_gb_s": about, "/memory/copy_gb_s": replace(about, status="measured")}
    document = replace(load_capability(DOCUMENTS / "null.json"), measurements=measurements)
    assert disturbance(document) == (
        "null0: the machine was busy: in 1 of 2 tests others had the processor, so these values are too low; "
        "repeat when idle"
    )


def test_a_bench_of_one_group_is_said_not_to_be_kept(
    cli: Cli, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert cli("bench", "--device", "null", plugins="null").code == 0
    (kept,) = (tmp_path / "home/.local/state/vllm-probe").glob("*/null0.capability.json")
    before = kept.read_text()
    assert cli("bench", "--device", "null", "--only", "memory", plugins="null").code == 0
    assert kept.read_text() == before
    assert caplog.messages == ["only memory is measured: the result is not kept for this machine"]
    kept.unlink()
    assert cli("bench", "--device", "null", "--only", "gemm,memory", plugins="null").code == 0
    assert kept.is_file()
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    ("name", "headline"),
    [
        ("cpu-healthy", "nothing wrong was found on this machine"),
        ("adreno-msm", "no known fault was found, but 1 of 1 device cannot be used: see why below"),
        ("nvidia-lost", "1 blocks"),
        ("nvidia-mig", "nothing wrong was found on this machine"),
        ("neuron-trn1", "no known fault was found, but 1 of 2 devices was not checked: see below"),
    ],
)
def test_no_machine_with_a_dead_device_is_said_to_be_well(cli: Cli, name: str, headline: str) -> None:
    ended = cli("--replay", HOSTS / name, "doctor", plugins="cpu,nvidia,neuron,adreno")
    assert ended.out.splitlines()[0] == headline
    assert ended.code == int("blocks" in headline)


@pytest.mark.parametrize(("text", "said"), [("Segmentation fault", "nothing in it is known here"), ("", "it is empty")])
def test_a_log_that_is_not_understood_is_said_first(cli: Cli, tmp_path: Path, text: str, said: str) -> None:
    log = tmp_path / "log.txt"
    log.write_text(text)
    ended = cli("--replay", HOSTS / "cpu-healthy", "doctor", "--log", log, plugins="cpu")
    assert ended.out.startswith(f"the log is not understood: {said}")
    assert "what was found without it:\nnothing wrong was found on this machine\n" in ended.out


def test_a_misspelt_measurement_is_an_error_and_nothing_else(cli: Cli, caplog: pytest.LogCaptureFixture) -> None:
    assert cli("bench", "--only", "gem").error == "unknown-name"
    assert "is measured" not in caplog.text


@pytest.mark.parametrize("listed", ["", " ", ","])
def test_an_empty_list_of_measurements_is_not_taken_for_all(cli: Cli, listed: str) -> None:
    ended = cli("bench", "--device", "null", "--only", listed, plugins="null")
    assert (ended.code, ended.error) == (2, "bad-usage")
    assert "gemm, memory" in ended.err


def test_an_empty_name_of_a_baseline_is_not_taken_for_none(cli: Cli) -> None:
    assert cli("bench", "--device", "null", "--compare", "", plugins="null").code == 2


def test_a_quick_bench_does_not_take_the_place_of_a_whole_one(
    cli: Cli, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "home/.local/state/vllm-probe"
    assert cli("bench", "--device", "null", "--quick", plugins="null").code == 0
    (kept,) = folder.glob("*/null0.capability.json")
    assert cli("bench", "--device", "null", plugins="null").code == 0
    whole = kept.read_text()
    assert not caplog.messages
    assert cli("bench", "--device", "null", "--quick", "--emit", "quick.json", plugins="null").code == 0
    assert kept.read_text() == whole != Path("quick.json").read_text()
    assert caplog.messages == [f"the result is not kept for this machine: {kept} holds a whole bench"]


def test_bench_of_all_devices_fills_a_folder_and_prints_an_array(cli: Cli) -> None:
    ended = cli("bench", "--device", "all", "--only", "memory", "--emit", "folder", "--json", plugins="null")
    assert [document["device"]["id"] for document in ended.json()] == ["null0"]
    assert [path.name for path in Path("folder").iterdir()] == ["null0.capability.json"]


def test_an_interrupted_bench_keeps_a_valid_partial_and_goes_on_from_it(cli: Cli, tmp_path: Path) -> None:
    target, partial = Path("measured.json"), Path("measured.json.partial")
    target.write_text("mine")
    cli("--version", plugins="null")
    steps: list[str] = []

    def interrupt(step: str, done: int, total: int) -> None:
        steps.append(step)
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match=r"measured\.json\.partial keeps what was measured") as caught:
        api.bench(device="null", output=target, progress=interrupt)
    assert caught.value.exit_code == 130
    assert target.read_text() == "mine"
    document = read_json(partial)
    assert violations("capability", document) == ()
    assert document["measurements"]["/compute_units/fp32/throughput_gflops"]["status"] in {"measured", "skipped"}
    first, steps[:] = len(steps), []
    (made,) = api.bench(device="null", output=target, progress=lambda step, done, total: steps.append(step))
    assert "memory read" not in steps
    assert first > 4
    assert made.memory.read_gb_s == document["memory"]["read_gb_s"]
    assert not partial.exists()


def test_a_device_without_a_descriptor_is_measured_in_a_child(cli: Cli, caplog: pytest.LogCaptureFixture) -> None:
    Path("capability.json").write_text("{")
    ended = cli("negotiate", "--model", "Qwen3-Embedding-0.6B", "--json", plugins="null")
    assert ended.code == 0
    assert ended.json()["capability"].startswith("quick bench of null0")
    passed_over, measured = caplog.messages
    assert passed_over.startswith("capability.json is not used: ")
    assert measured == "no capability document for null0: measuring it, about 8 s"
    again = cli("negotiate", "--model", "Qwen3-Embedding-0.6B", "--json", plugins="null")
    assert "null0.capability.json" in again.json()["capability"]


def test_of_that_child_nothing_shows_where_nobody_watches_its_progress(cli: Cli) -> None:
    assert cli("--version", plugins="null").code == 0
    command = [sys.executable, "-m", "vllm_probe", "negotiate", "--model", "Qwen3-Embedding-0.6B", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(ended.stdout)["capability"].startswith("quick bench of null0")
    assert ended.stderr == "warning: no capability document for null0: measuring it, about 8 s\n"


def test_a_replay_is_never_measured(cli: Cli) -> None:
    assert cli("--replay", HOSTS / "cpu-healthy", "negotiate", "--model", "Qwen3-0.6B").error == "no-descriptor"
    ended = cli("--replay", HOSTS / "cpu-healthy", "capability", "path", width=200)
    assert "not looked at on a replay" in ended.out


_PLUGIN = """
from vllm_probe.core.plugin import VendorPlugin
PLUGIN = VendorPlugin(api_version={}, name="{}", device_types=("x",), probe="a:b")
"""


def test_bad_plugins_are_named_and_disturb_nothing(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    info = site / "acme-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    lines = [f"{name} = acme_{name}:PLUGIN\n" for name in ("old", "raising", "heavy")]
    (info / "entry_points.txt").write_text("[vllm_probe.vendors]\n" + "".join(lines))
    (site / "acme_old.py").write_text(_PLUGIN.format(99, "old"))
    (site / "acme_raising.py").write_text("raise OSError('no such card')\n")
    (site / "acme_heavy.py").write_text("import torch\n" + _PLUGIN.format(1, "heavy"))
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    listed = cli("adapter", "list", plugins="", width=200).out
    assert "is for plug-in contract 99" in listed
    assert "no such card" in listed
    assert "imports torch when it is registered" in listed
    assert cli("detect", plugins="cpu").code == 0


class _WithoutTorch(LocalHost):
    """This machine with a processor that no shipped document describes, and without torch."""

    def platform(self) -> Platform:
        return replace(super().platform(), site_packages=())

    def read_text(self, path: str) -> str | None:
        return re.sub("model name\t:.*", "model name\t: Unheard-of CPU", super().read_text(path) or "") or None

    def spawn(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> LocalChild:
        raise AssertionError("a bench that cannot succeed is started")


def test_what_cannot_be_measured_without_torch_names_both_ways_out(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("--version").code == 0
    Path("capability.json").unlink(missing_ok=True)
    for module in ("vllm_probe.vendors.cpu.adapter", "vllm_probe.vendors.torchbase"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match="no capability document describes cpu0") as caught:
        api.negotiate("Qwen3-Embedding-0.6B", _WithoutTorch())
    assert extra_command("runtime") in caught.value.hint
    assert "--capability" in caught.value.hint


@pytest.mark.parametrize("command", ["detect", "doctor"])
def test_a_broken_descriptor_of_this_machine_is_said_and_one_beside_a_replay_is_not(cli: Cli, command: str) -> None:
    Path("capability.json").write_text('{"a"')
    here = cli(command, width=200)
    assert "CAP-01  degrades  this machine" in here.out
    assert "      vllm-probe capability validate capability.json" in here.out
    replayed = cli("--replay", str(HOSTS / "cpu-healthy"), command)
    assert replayed.code == 0
    assert "CAP-01" not in replayed.out
