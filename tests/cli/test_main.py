"""What every command has in common: errors in two lines, exit codes, help, version, streams."""

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.cli.conftest import HOSTS, Cli
from vllm_probe.cli.app import COMMANDS, LazyGroup, app
from vllm_probe.cli.commands.negotiate import PINNED
from vllm_probe.cli.exits import EXTRA_OF, missing_extra
from vllm_probe.core.extras import extra_command
from vllm_probe.core.version import __version__

BROKEN, INVALID, ASCEND = "broken.json", "invalid.json", "ascend.json"
SCENE = HOSTS / "cpu-healthy"
MODEL = ("negotiate", "--model", "Qwen3-Embedding-0.6B")


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("detekt",), 2, "bad-usage"),
        (("--frobnicate",), 2, "bad-usage"),
        (("detect", "--frobnicate"), 2, "bad-usage"),
        (("capability",), 2, "bad-usage"),
        (("--log-level", "loud", "detect"), 2, "bad-usage"),
        (("detect", "--vendor", "nowhere"), 2, "unknown-name"),
        (("schema", "nothing"), 2, "unknown-name"),
        (("capability", "show", "nothing"), 2, "unknown-name"),
        (("capability", "validate", "absent.json"), 2, "unreadable-file"),
        (("capability", "validate", BROKEN), 2, "invalid-json"),
        (("capability", "validate", INVALID), 1, "not-valid"),
        (("--replay", "absent.json", "detect"), 2, "unreadable-file"),
        (("--replay", INVALID, "detect"), 2, "schema-violation"),
        (("--replay", SCENE, "bench"), 2, "replay-refused"),
        (("--replay", SCENE, "serve"), 2, "replay-refused"),
        (("negotiate", "--model", "all-MiniML"), 2, "unknown-model"),
        (("negotiate", "--model", "./absent"), 2, "unreadable-file"),
        (("negotiate",), 2, "bad-usage"),
        ((*MODEL, "--capability", BROKEN), 2, "invalid-json"),
        ((*MODEL, "--capability", INVALID), 2, "schema-violation"),
        ((*MODEL, "--device", "gpu7"), 3, "device-not-found"),
        ((*MODEL, "--device-memory", "24 parsecs"), 2, "bad-usage"),
        ((*MODEL, "--capability", ASCEND, "--dtype", "float7"), 2, "bad-usage"),
        ((*MODEL, "--capability", ASCEND, "--max-num-seqs", "0"), 2, "bad-usage"),
        ((*MODEL, "--capability", ASCEND, "--gpu-memory-utilization", "0"), 2, "bad-usage"),
        ((*MODEL, "--capability", ASCEND, "--concurrency", "many"), 2, "bad-usage"),
        ((*MODEL, "--capability", ASCEND, "--output", "absent/runtime.json"), 2, "unwritable-output"),
        (("--replay", SCENE, *MODEL), 3, "no-descriptor"),
        (("negotiate", "--model", "GLM-5.3", "--capability", ASCEND, "--device-memory", "24GiB"), 1, "does-not-fit"),
        (("bench", "--emit", "absent/capability.json"), 2, "unwritable-output"),
        (("bench", "--only", "luck"), 2, "unknown-name"),
        (("serve",), 2, "unreadable-file"),
        (("serve", "a", "--model", "b"), 2, "bad-usage"),
        (("serve", "Qwen3-Embedding-0.6B"), 3, "weights-unavailable"),
    ],
)
def test_an_expected_failure_is_an_exit_code_and_two_lines(
    cli: Cli, arguments: tuple[Any, ...], code: int, error: str
) -> None:
    ended = cli(*arguments)
    assert (ended.code, ended.error) == (code, error)
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("capability", "validate", "pipe.json"),
        (*MODEL, "--capability", "pipe.json"),
        ("--replay", "pipe.json", "detect"),
        ("doctor", "--log", "pipe.json"),
    ],
)
def test_no_command_waits_for_a_pipe(cli: Cli, arguments: tuple[str, ...]) -> None:
    os.mkfifo("pipe.json")
    ended = cli(*arguments)
    assert (ended.code, ended.error) == (2, "unreadable-file")


@pytest.mark.parametrize("command", ["schema runtime", "--version", "--help"])
@pytest.mark.parametrize(
    ("streams", "code", "error"),
    [
        (">/dev/full", 2, "cannot write to stdout: No space left on device [unwritable-output]"),
        (">/dev/full 2>/dev/full", 2, None),
        (">&- 2>&-", 2, None),
        (">&-", 2, "cannot write to stdout: it is closed [unwritable-output]"),
        ("2>&-", 0, None),
    ],
)
def test_a_stream_that_takes_nothing_is_no_bug_of_ours(command: str, streams: str, code: int, error: str) -> None:
    line = f'exec "$0" -m vllm_probe {command} {streams}'
    ended = subprocess.run(["sh", "-c", line, sys.executable], capture_output=True, text=True, check=False)
    assert ended.returncode == code
    assert ended.stderr.partition("\n")[0] == (f"error: {error}" if error else "")
    assert "Traceback" not in ended.stderr


def test_a_log_on_stdin_may_hold_any_bytes(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff no such error"), encoding="utf-8"))
    assert cli("--replay", SCENE, "doctor", "--log", "-", "--json").json()["not_checked"]
    monkeypatch.setattr(sys, "stdin", None)
    ended = cli("--replay", SCENE, "doctor", "--log", "-")
    assert (ended.code, ended.error) == (2, "unreadable-file")


def test_near_misses_are_offered(cli: Cli) -> None:
    assert "did you mean 'detect'?" in cli("detec").err
    assert "all-MiniLM-L6-v2" in cli("negotiate", "--model", "all-MiniML").err


def test_a_family_lists_its_models_with_how_they_fit(cli: Cli) -> None:
    ended = cli("negotiate", "--model", "Qwen3", "--capability", ASCEND, "--device-memory", "8GiB")
    assert (ended.code, ended.error) == (2, "ambiguous-model")
    assert re.search(r"boots with --engine vllm: [^;]*\bQwen3-0.6B,", ended.err)
    assert re.search(r"oom with --engine vllm: [^;]*\bQwen3-32B,", ended.err)


def test_a_schema_violation_names_file_and_pointer(cli: Cli) -> None:
    assert "/memory/bandwidth_gb_s" in cli("capability", "validate", INVALID).out
    assert f"{INVALID}: (top level): 'facts' is missing" in cli("--replay", INVALID, "detect").err


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (("serve", "torn.json"), "vllm-probe negotiate"),
        (("negotiate", "--model", "Qwen3-Embedding-0.6B", "--capability", "torn.json"), "vllm-probe bench --emit FILE"),
        (("--replay", "torn.json", "detect"), "vllm-probe doctor --record DIR"),
        (("negotiate", "--model", "torn", "--capability", "cpu.json"), "get the model's files again"),
    ],
)
def test_a_damaged_file_names_what_makes_it_again(cli: Cli, arguments: tuple[str, ...], command: str) -> None:
    Path("torn").mkdir()
    for path in ("torn.json", "torn/config.json"):
        Path(path).write_text('{"a"')
    ended = cli(*arguments)
    assert (ended.code, ended.error) == (2, "invalid-json")
    assert command in ended.err.rpartition("hint: ")[2]


def test_a_document_in_the_place_of_another_is_called_what_it_is_with_what_takes_it(cli: Cli) -> None:
    negotiate = ("negotiate", "--model", "Qwen3-Embedding-0.6B", "--capability")
    assert cli(*negotiate, "cpu.json").code == 0
    ended = cli("serve", "cpu.json")
    assert ended.error == "schema-violation"
    assert "error: cpu.json is a capability document, not a runtime config [" in ended.err
    assert "`vllm-probe negotiate --capability cpu.json --model MODEL` first" in ended.err
    ended = cli(*negotiate, "runtime.json")
    assert ended.error == "schema-violation"
    assert "error: runtime.json is a runtime config, not a capability document [" in ended.err
    assert "`vllm-probe bench --emit FILE`" in ended.err


def test_variables_are_checked_once_for_all_commands(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("detect", plugins="cpu,nowhere").error == "bad-usage"
    monkeypatch.setenv("VLLM_PROBE_CAPABILITY_PATH", "/nowhere")
    ended = cli("doctor")
    assert (ended.code, ended.error) == (2, "bad-usage")


@pytest.mark.parametrize("lines", [0, 1, 3, 60])
@pytest.mark.parametrize("command", ["--help", "negotiate --help", "capability show --help", "schema runtime"])
def test_a_reader_that_leaves_is_no_error(command: str, lines: int) -> None:
    line = f'{{ "$0" -m vllm_probe {command}; echo "ended with $?" >&2; }} | head -n {lines}'
    ended = subprocess.run(["sh", "-c", line, sys.executable], capture_output=True, text=True, check=False)
    assert ended.stderr == "ended with 0\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_no_name_of_an_option_is_cut_and_a_flag_takes_nothing(cli: Cli, name: str) -> None:
    text = cli(name, "--help", width=80).out
    assert not re.search(r"^│ -\S*…", text, re.MULTILINE)
    assert "<bool>" not in text
    group = typer.main.get_command(app)
    command = group.get_command(None, name)  # type: ignore[attr-defined]
    options = [word for option in command.params for word in (*option.opts, *option.secondary_opts) if word[:2] == "--"]
    assert all(re.search(rf"[│,] ?{word}[, ]", text) for word in options)


def test_what_is_logged_begins_with_its_level() -> None:
    program = (
        "import logging; from vllm_probe.cli.main import main; main(['schema', 'scene'])\n"
        "logging.getLogger('a').warning('look')"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stderr == "warning: look\n"


def test_without_arguments_the_help_is_shown(cli: Cli) -> None:
    ended = cli()
    assert ended.code == 0
    assert all(name in ended.out for name in COMMANDS)


def test_the_version_is_printed(cli: Cli) -> None:
    assert cli("--version").out == f"vllm-probe {__version__}\n"


def _commands() -> Iterator[tuple[str, Any]]:
    group = typer.main.get_command(app)
    assert isinstance(group, LazyGroup)
    yield "vllm-probe", group
    for name in COMMANDS:
        command = group.get_command(None, name)
        yield from ((f"{name} {sub}", inner) for sub, inner in getattr(command, "commands", {name: command}).items())


def test_every_option_says_what_it_does_and_what_holds_without_it() -> None:
    for path, command in _commands():
        assert command.help, path
        for option in command.params:
            assert option.help, f"{path} {option.name}"
            obvious = option.required or option.default is not None or option.rich_help_panel == PINNED
            assert obvious or isinstance(option.show_default, str), f"{path} {option.name}"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_its_help(cli: Cli, name: str) -> None:
    ended = cli(name, "--help")
    assert ended.code == 0
    assert f"vllm-probe {name}" in ended.out


class _Failing(io.StringIO):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str) -> int:
        raise self.error


def test_a_bug_keeps_its_traceback_and_asks_for_a_recording(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", _Failing(RuntimeError("no room")))
    ended = cli("schema", "scene")
    assert (ended.code, ended.error) == (101, "internal-error")
    assert "Traceback" in ended.err
    assert "RuntimeError: no room" in ended.err
    assert "doctor --record" in ended.err


def test_an_interruption_is_said(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", _Failing(KeyboardInterrupt()))
    ended = cli("schema", "scene")
    assert (ended.code, ended.error) == (130, "interrupted")


_PRESSED = """
import os, signal, sys

class Press:
    def find_spec(name, path=None, target=None):
        if name == sys.argv[1]:
            sys.meta_path.remove(Press)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Press)
from vllm_probe.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("typer", ("--version",)),
        ("numpy", ("bench", "--device", "cpu0", "--quick", "--only", "launch")),  # torch imports it from native code
    ],
)
def test_ctrl_c_while_a_module_is_imported_is_an_interruption(cli: Cli, module: str, command: tuple[str, ...]) -> None:
    argv = [sys.executable, "-c", _PRESSED, module, *command]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout) == (130, "")
    assert "error: interrupted [interrupted]" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_package_that_is_missing_is_named_with_its_extra() -> None:
    for module, extra in EXTRA_OF.items():
        error = missing_extra(ModuleNotFoundError(name=f"{module}.sub"))
        assert error is not None
        assert error.exit_code == 3
        assert error.hint.startswith(f"{extra_command(extra)} brings it")
        assert ("https://download.pytorch.org/whl/cpu` first" in error.hint) == (module == "torch")
    assert missing_extra(ModuleNotFoundError(name="vllm_probe.absent")) is None


_WITHOUT = (
    "import sys; sys.modules[sys.argv[1]] = None; from vllm_probe.cli.main import main; sys.exit(main(sys.argv[2:]))"
)


@pytest.mark.parametrize("module", ["torch", "fastapi", "tokenizers"])
def test_a_command_without_its_extra_says_which_to_install(cli: Cli, module: str) -> None:
    assert cli("negotiate", "--model", "all-MiniLM-L6-v2", "--capability", "cpu.json").code == 0
    for command in (["serve", "--port", "0"], *([["bench"]] if module == "torch" else [])):
        argv = [sys.executable, "-c", _WITHOUT, module, *command]
        ended = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=250)
        assert ended.returncode == 3
        assert "[missing-extra]" in ended.stderr
        assert extra_command("runtime") in ended.stderr
        assert ("https://download.pytorch.org/whl/cpu" in ended.stderr) == (module == "torch")
        assert "Traceback" not in ended.stderr


def test_torch_without_numpy_says_nothing_to_the_user() -> None:
    code = f"{_WITHOUT.rpartition('; ')[0]}; main(sys.argv[2:]); import torch"
    argv = [sys.executable, "-c", code, "numpy", "--version"]
    ended = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=250)
    assert ended.stderr == ""


def test_a_reader_that_goes_away_changes_nothing() -> None:
    command = f"{sys.executable} -m vllm_probe schema runtime | true; echo ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, timeout=250)
    assert (ended.stdout, ended.stderr) == ("0\n", "")


def test_an_empty_api_key_is_bad_usage_wherever_it_comes_from(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    dry = ("serve", "--dry-run")
    assert cli(*dry).error == "unreadable-file"
    assert cli(*dry, "--api-key", "").error == "bad-usage"
    monkeypatch.setenv("VLLM_API_KEY", "")
    assert cli(*dry).error == "bad-usage"
    assert cli(*dry, "--api-key", "key").error == "unreadable-file"


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("doctor", "--replay", "rec"), "vllm-probe --replay rec doctor"),
        (("doctor", "--replay=rec", "--json"), "vllm-probe --replay=rec doctor --json"),
        (("capability", "list", "--no-color"), "vllm-probe --no-color capability list"),
        (("doctor", "--replay"), "vllm-probe --replay doctor"),
    ],
)
def test_a_global_option_behind_the_command_is_answered_with_the_line_that_was_meant(
    cli: Cli, arguments: tuple[str, ...], meant: str
) -> None:
    ended = cli(*arguments)
    assert ended.error == "bad-usage"
    assert ended.err.endswith(f"hint: global options stand before the command: {meant}\n")


@pytest.mark.parametrize("command", [(), ("doctor",), ("capability", "show")])
def test_h_is_help(cli: Cli, command: tuple[str, ...]) -> None:
    assert cli(*command, "-h").out == cli(*command, "--help").out != ""


def test_a_number_beyond_all_floats_is_a_violation_with_its_pointer(cli: Cli) -> None:
    text = Path(ASCEND).read_text(encoding="utf-8")
    Path(ASCEND).write_text(re.sub(r'"bandwidth_gb_s": [\d.]+', '"bandwidth_gb_s": 1e999', text, count=1))
    ended = cli("capability", "validate", ASCEND)
    assert (ended.code, ended.error) == (1, "not-valid")
    assert ended.out.startswith("/memory/bandwidth_gb_s: ")
