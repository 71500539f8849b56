"""`vllm-probe export`, and `serve --engine vllm` with a program that stands for vLLM."""

import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import HOSTS, Cli
from vllm_probe.api.serving_vllm import VllmRun, serve_vllm
from vllm_probe.core.files import read_json
from vllm_probe.host.children import LocalChild
from vllm_probe.host.local import LocalHost

FORMS = ("vllm", "docker", "compose", "k8s")
EMBEDDING = "Qwen3-Embedding-0.6B"
FAKE = """#!{python}
import json, os, signal, sys, time
file = sys.argv[sys.argv.index("--config") + 1]
names = ("OMP_NUM_THREADS", "VLLM_CPU_OMP_THREADS_BIND", "VLLM_API_KEY")
seen = {{"argv": sys.argv[1:], "config": open(file).read(), "env": {{name: os.environ.get(name) for name in names}}}}
print("said on stdout", flush=True)

def write():
    with open({record!r} + "~", "w") as file:
        json.dump(seen, file)
    os.replace({record!r} + "~", {record!r})

def end(number, frame):
    seen["signal"] = number
    write()
    sys.exit(7)

for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, end)
write()
if {waits}:
    time.sleep(120)
sys.exit(3)
"""


def fake_vllm(folder: Path, *, version: str | None = "0.32.0", tag: str = "vllm_cpu", waits: bool = False) -> Path:
    """A `vllm` in an environment of its own that writes what it was given to the path returned."""
    record, program = folder / "record.json", folder / "bin" / "vllm"
    program.parent.mkdir(parents=True)
    program.write_text(FAKE.format(python=sys.executable, record=str(record), waits=waits))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    site = folder / "lib" / "python3.11" / "site-packages"
    (site / "vllm").mkdir(parents=True)
    if version:
        (site / "vllm" / "_version.py").write_text(f"__version__ = version = '{version}'\n")
        (site / f"{tag}-{version}.dist-info").mkdir()
    return record


def negotiated(cli: Cli, *options: str, model: str = EMBEDDING, capability: str = "cpu.json") -> dict[str, Any]:
    given = ("--model", model, "--capability", capability, "--engine", "vllm", *options)
    assert cli("negotiate", *given, plugins="cpu,nvidia,amd,intel,ascend").code == 0
    found: dict[str, Any] = read_json(Path("runtime.json"))
    return found


def test_the_file_of_vllm_holds_the_negotiated_values_and_says_what_vllm_would_take(cli: Cli) -> None:
    config = negotiated(cli, "--engine-version", "0.32.0")
    ended = cli("export", "vllm")
    assert ended.code == 0
    values = yaml.safe_load(ended.out)
    assert values["model"] == config["model"]
    assert values["max-model-len"] == config["max_model_len"]
    assert values["max-num-seqs"] == config["max_num_seqs"]
    assert json.loads(values["pooler-config"]) == {"pooling_type": "LAST", "use_activation": True}
    assert "# changed, vLLM's own is 0.92: " in ended.out
    assert "# kept, vLLM's own: the model's limit\n" in ended.out


@pytest.mark.parametrize("form", FORMS)
def test_what_is_saved_is_what_is_printed_and_the_next_command_is_said(cli: Cli, form: str) -> None:
    negotiated(cli)
    printed = cli("export", form).out
    ended = cli("export", form, "--output", "a file.yaml")
    assert (ended.code, ended.out) == (0, "")
    names = {"vllm": "FILE.yaml", "docker": "FILE", "compose": "FILE", "k8s": "FILE"}
    assert Path("a file.yaml").read_text().replace("'a file.yaml'", names[form]) == printed
    assert ended.err.startswith("saved a file.yaml; next: ")
    assert ended.err.rstrip().endswith("'a file.yaml'") or form == "compose"


def test_vllm_reads_its_file_only_by_that_ending(cli: Cli) -> None:
    negotiated(cli)
    ended = cli("export", "vllm", "--output", "vllm.json")
    assert (ended.code, ended.error) == (2, "bad-usage")
    assert not Path("vllm.json").exists()


def test_a_config_that_cannot_boot_is_not_exported_and_no_file_is_touched(cli: Cli) -> None:
    config = negotiated(cli)
    config["budget"]["verdict"] = "oom"
    Path("runtime.json").write_text(json.dumps(config))
    Path("vllm.yaml").write_text("old")
    ended = cli("export", "vllm", "--output", "vllm.yaml")
    assert (ended.code, ended.error) == (1, "does-not-fit")
    assert Path("vllm.yaml").read_text() == "old"


def test_what_needs_another_checkpoint_is_exported_as_it_is_and_that_is_said(
    cli: Cli, caplog: pytest.LogCaptureFixture
) -> None:
    config = negotiated(cli, capability="ascend.json")
    assert config["quantization"] == "awq"
    ended = cli("export", "vllm")
    assert ended.code == 0
    assert "quantization" not in yaml.safe_load(ended.out)
    assert "# note: an AWQ checkpoint of" in ended.out
    assert "has to be obtained first" in caplog.text


def test_a_pinned_format_without_its_checkpoint_is_refused(cli: Cli) -> None:
    negotiated(cli, "--quantization", "awq", capability="ascend.json")
    ended = cli("export", "docker")
    assert (ended.code, ended.error) == (3, "weights-unavailable")


def test_the_bundled_runtime_has_no_file_of_vllms_and_an_image_of_its_own(cli: Cli) -> None:
    assert cli("negotiate", "--model", "all-MiniLM-L6-v2", "--capability", "cpu.json").code == 0
    ended = cli("export", "vllm")
    assert (ended.code, ended.error) == (2, "bad-usage")
    assert "--engine vllm" in ended.err
    line = cli("export", "docker").out
    assert "vllm/" not in line
    assert f"source={Path('runtime.json').resolve()},target=/etc/vllm-probe/runtime.json,readonly" in line
    pod = cli("export", "k8s").out
    assert "# build the image first: docker build " in pod
    assert "# then push the image to a registry that the nodes pull from" in pod
    manifest = list(yaml.safe_load_all(pod))
    assert [each["kind"] for each in manifest] == ["ConfigMap", "Deployment", "Service"]
    assert json.loads(manifest[0]["data"]["runtime.json"])["model"] == "all-MiniLM-L6-v2"


def test_an_unknown_vendor_is_refused_with_what_is_known(cli: Cli) -> None:
    config = negotiated(cli)
    Path("runtime.json").write_text(json.dumps(config | {"device_type": "abacus"}))
    ended = cli("export", "docker")
    assert (ended.code, ended.error) == (3, "no-image")
    Path("runtime.json").write_text(json.dumps(config | {"device_type": "gaudi"}))
    ended = cli("export", "docker", plugins="gaudi")
    assert (ended.code, ended.error) == (3, "no-image")
    assert "export vllm" in ended.err


def test_no_config_says_how_to_make_one(cli: Cli) -> None:
    ended = cli("export", "docker")
    assert (ended.code, ended.error) == (2, "unreadable-file")
    assert "negotiate --engine vllm MODEL` (for the bundled runtime without --engine vllm) first" in ended.err
    assert "bundled" not in cli("export", "vllm").err


def test_groups_and_the_number_of_the_device_are_those_of_this_machine(cli: Cli) -> None:
    replay = ("--replay", HOSTS / "amd-workstation")
    devices = cli(*replay, "detect", "--json", plugins="amd").json()
    card = next(each for each in devices["devices"] if each["kind"] == "gpu")
    config = negotiated(cli, capability="mi300x")
    config |= {"device": card["id"], "host_fingerprint": devices["host_fingerprint"]}
    Path("runtime.json").write_text(json.dumps(config))
    service = yaml.safe_load(cli(*replay, "export", "compose", plugins="amd").out)["services"].popitem()[1]
    assert all(re.fullmatch(r"\d+", group) for group in service["group_add"])
    assert service["environment"]["HIP_VISIBLE_DEVICES"] == str(card["indices"]["hip"])
    assert card["indices"]["drm_render"] == 129
    assert "$(stat -c %g /dev/dri/renderD129)" in cli(*replay, "export", "docker", plugins="amd").out
    elsewhere = yaml.safe_load(cli("export", "compose", plugins="amd").out)["services"].popitem()[1]
    assert all(group.startswith("${GID_") for group in elsewhere["group_add"])


def test_a_pod_asks_for_the_driver_of_the_card_here_and_elsewhere_for_that_of_its_descriptor(cli: Cli) -> None:
    replay = ("--replay", HOSTS / "intel-arc-a770")
    devices = cli(*replay, "detect", "--json", plugins="intel").json()
    card = next(each for each in devices["devices"] if each["kind"] == "gpu")
    config = negotiated(cli, capability="arc-a770-16gb")
    config |= {"device": card["id"], "host_fingerprint": devices["host_fingerprint"]}
    Path("runtime.json").write_text(json.dumps(config))
    assert "gpu.intel.com/i915: 1\n" in cli(*replay, "export", "k8s", plugins="intel").out
    assert "is not known here: put gpu.intel.com/i915 for" in cli("export", "k8s", plugins="intel").out
    described = read_json(Path(config["capability"]))
    described["device"]["driver"] = "i915"
    Path("mine.json").write_text(json.dumps(described))
    Path("runtime.json").write_text(json.dumps(config | {"capability": "mine.json (sha256:0123456789abcdef)"}))
    elsewhere = cli("export", "k8s", plugins="intel").out
    assert "gpu.intel.com/i915: 1\n" in elsewhere
    assert "not known here" not in elsewhere


def test_a_shell_runs_nothing_but_docker_with_the_path_as_it_is(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a b;$(touch ran)`touch ran`'\"\n$HOME,c"
    config = negotiated(cli) | {"model": str(folder)}
    Path("runtime.json").write_text(json.dumps(config))
    assert cli("export", "docker", "--output", "run.sh").code == 0
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(f"#!{sys.executable}\nimport json, sys\njson.dump(sys.argv[1:], open('argv.json', 'w'))\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{docker.parent}:{os.environ['PATH']}")
    subprocess.run(["sh", "run.sh"], check=True)
    words = read_json(Path("argv.json"))
    assert words[words.index("serve") + 1] == str(folder)
    assert f"{os.environ['HOME']}/.cache/huggingface:/root/.cache/huggingface" in words
    assert not list(Path().glob("ran*"))


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}/vllm/bin:{os.environ['PATH']}")
    return tmp_path / "vllm"


def test_real_vllm_is_started_with_the_config_as_its_file(cli: Cli, on_path: Path) -> None:
    record = fake_vllm(on_path)
    config = negotiated(cli, "--engine-version", "0.32.0")
    ended = cli("serve", "--port", "8123", "--served-model-name", "a b", "--api-key", "secret", "--on-busy", "fail")
    assert ended.code == 3  # the program's own
    seen = read_json(record)
    file = seen["argv"][2]
    options = ["--host", "127.0.0.1", "--port", "8123", "--served-model-name", "a b"]
    assert seen["argv"] == ["serve", "--config", file, *options]
    assert yaml.safe_load(seen["config"])["max-num-seqs"] == config["max_num_seqs"]
    assert seen["env"]["OMP_NUM_THREADS"] == str(config["threads"])
    assert seen["env"]["VLLM_API_KEY"] == "secret"
    assert "secret" not in ended.err
    assert not Path(file).exists()


def test_a_dry_run_prints_the_file_and_the_command(cli: Cli, on_path: Path) -> None:
    record = fake_vllm(on_path)
    negotiated(cli, "--engine-version", "0.32.0")
    ended = cli("serve", "--dry-run", "--load-format", "dummy")
    assert ended.code == 0
    assert yaml.safe_load(ended.out)["runner"] == "pooling"
    line = shlex.split(ended.err.splitlines()[-1].removeprefix("would run "))
    assert line[-5:] == ["127.0.0.1", "--port", "8000", "--load-format", "dummy"]
    assert not record.exists()


def test_a_model_is_negotiated_for_the_version_that_is_installed(cli: Cli, on_path: Path) -> None:
    fake_vllm(on_path, version="0.10.0")
    Path("capability.json").write_text(Path("cpu.json").read_text())
    ended = cli("serve", EMBEDDING, "--engine", "vllm", "--dry-run")
    assert ended.code == 0
    values = yaml.safe_load(ended.out)
    assert values["task"] == "embed"
    assert not {"runner", "kv-cache-memory-bytes", "pooler-config"} & set(values)
    assert "VLLM_CPU_KVCACHE_SPACE=" in ended.err


def test_a_config_for_another_version_is_written_in_the_words_of_the_installed_one(
    cli: Cli, on_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fake_vllm(on_path, version="0.10.1")
    negotiated(cli, "--engine-version", "0.33.0")
    ended = cli("serve", "--dry-run")
    assert json.loads(yaml.safe_load(ended.out)["override-pooler-config"])["normalize"] is True
    assert "the config is for vLLM 0.33.0, 0.10.1 is installed" in caplog.text


@pytest.mark.parametrize(("version", "tag"), [("0.32.0", "vllm"), ("0.32.0+rocm721", "vllm")])
def test_a_build_for_another_vendor_is_refused(cli: Cli, on_path: Path, version: str, tag: str) -> None:
    fake_vllm(on_path, version=version, tag=tag)
    negotiated(cli)
    ended = cli("serve", "--dry-run")
    assert (ended.code, ended.error) == (3, "device-unavailable")
    assert "is built for" in ended.err


def test_a_link_to_vllm_is_followed_to_its_environment(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_vllm(tmp_path / "env", version="0.32.0", tag="vllm")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "vllm").symlink_to("../env/bin/vllm")
    monkeypatch.setenv("PATH", str(tmp_path / "links"))
    negotiated(cli)
    ended = cli("serve", "--dry-run")
    assert (ended.code, ended.error) == (3, "device-unavailable")
    assert f"vLLM 0.32.0 at {tmp_path}/links/vllm is built for nvidia" in ended.err


def test_no_vllm_is_said_with_commands_that_make_its_container(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("capability.json").write_text(Path("cpu.json").read_text())
    negotiated(cli, "--max-model-len", "512")
    monkeypatch.setenv("PATH", "/nowhere")
    for arguments in (("serve",), ("serve", EMBEDDING, "--engine", "vllm")):
        ended = cli(*arguments)
        assert (ended.code, ended.error) == (3, "command-missing")
        first, then = re.findall(r"`(vllm-probe negotiate .+) && (vllm-probe export docker)`$", ended.err.rstrip())[0]
        assert ("--max-model-len 512" in first) == (arguments == ("serve",))
        Path("runtime.json").rename("old.json")
        assert cli(*shlex.split(first)[1:]).code == 0
        assert cli(*shlex.split(then)[1:]).code == 0


def test_a_model_that_cannot_boot_is_refused_before_vllm_is_looked_for(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("capability.json").write_text(Path("cpu.json").read_text())
    monkeypatch.setenv("PATH", "/nowhere")
    ended = cli("serve", "GLM-5.3", "--engine", "vllm")
    assert (ended.code, ended.error) == (1, "does-not-fit")
    assert "vLLM is not installed" not in ended.err


def test_what_would_run_is_shown_where_vllm_is_not_installed(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    Path("capability.json").write_text(Path("cpu.json").read_text())
    ended = cli("serve", EMBEDDING, "--engine", "vllm", "--dry-run")
    assert ended.code == 0
    assert yaml.safe_load(ended.out)["runner"] == "pooling"
    assert " vllm serve --config FILE.yaml --host " in ended.err
    assert "vLLM is not installed here" in caplog.text


def test_a_gguf_file_is_not_served_without_the_tokenizer_that_serve_cannot_name(cli: Cli, on_path: Path) -> None:
    record = fake_vllm(on_path, version="0.33.0")
    config = negotiated(cli)
    Path("runtime.json").write_text(json.dumps(config | {"quantization": "gguf"}))
    ended = cli("serve")
    assert (ended.code, ended.error) == (3, "unsupported-model")
    assert "export vllm --output vllm.yaml" in ended.err
    assert not record.exists()


def test_a_vllm_of_unknown_version_is_started_and_the_doubt_is_said(
    cli: Cli, on_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fake_vllm(on_path, version=None)
    negotiated(cli)
    assert cli("serve", "--dry-run").code == 0
    assert "whether it runs on cpu0 is not known" in caplog.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_vllm_and_its_exit_code_is_ours(cli: Cli, on_path: Path, number: signal.Signals) -> None:
    record = fake_vllm(on_path, waits=True)
    negotiated(cli, "--engine-version", "0.32.0")
    command = [sys.executable, "-m", "vllm_probe", "serve"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not record.exists():
            time.sleep(0.05)
        process.send_signal(number)
        out, err = process.communicate()
        assert process.returncode == 7
    assert (out, err.splitlines()[-1]) == ("", "said on stdout")
    assert read_json(record)["signal"] == number


class Disturbed(LocalHost):
    """Gets a signal while it starts a child."""

    def launch(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> LocalChild:
        child = super().launch(["sleep", "60"])
        signal.raise_signal(signal.SIGTERM)
        return child


def test_a_signal_that_comes_while_vllm_is_started_reaches_it() -> None:
    run = VllmRun(program="vllm", model=(), text="", options=(), env={})
    assert serve_vllm(run, Disturbed()) == 128 + signal.SIGTERM


@pytest.mark.parametrize("page", ["reference/export.md", "guides/getting-started.md"])
def test_the_commands_of_a_page_for_another_device_leave_the_config_of_this_one_alone(cli: Cli, page: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / page).read_text()
    block = next(block for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL) if "--capability" in block)
    Path("runtime.json").write_text("mine")
    for line in block.splitlines():
        _, *arguments = shlex.split(line.partition("|")[0], comments=True)
        assert cli(*arguments, plugins="cpu,nvidia,intel").code == (1 if "GLM-5.3" in arguments else 0)
    assert Path("runtime.json").read_text() == "mine"
