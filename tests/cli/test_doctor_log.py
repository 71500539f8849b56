"""`doctor --log` for a person: where a fault is, what to put in the commands, and what to do about an unknown log."""

from pathlib import Path

from tests.cli.conftest import Cli

GATED = "OSError: You are trying to access a gated repo.\nHave access to it at https://huggingface.co/a/b.\n"


def test_a_fault_of_the_log_alone_is_not_said_of_this_machine(cli: Cli) -> None:
    Path("x.log").write_text(GATED)
    ended = cli("doctor", "--log", "x.log", width=120)
    assert ended.code == 1
    assert "MDL-01  blocks  in the log" in ended.out
    assert "blocks  this machine" not in ended.out


def test_capitals_that_are_left_are_explained_once_and_others_not(cli: Cli) -> None:
    Path("x.log").write_text(GATED)
    out = cli("doctor", "--log", "x.log", width=120).out
    assert "at https://huggingface.co/a/b, with the account" in out
    assert out.count("  IMAGE: the container image that you run") == 1
    assert ", such as vllm/vllm-openai" not in out
    assert "  MODEL: " not in out
    Path("x.log").write_text("RuntimeError: CUDA error: device-side assert triggered\n")
    assert "  MODEL: the model's name or folder" in cli("doctor", "--log", "x.log", width=120).out


def test_commands_name_the_file_that_was_given(cli: Cli) -> None:
    Path("x y.log").write_text("ValueError: nobody knows this\n")
    ended = cli("doctor", "--log", "x y.log", width=200)
    assert ended.code == 0
    assert "the log is not understood: nothing in it is known here; see its first error with `grep" in ended.out
    assert "'x y.log'`, and look for that at https://github.com/vllm-project/vllm/issues" in ended.out


def test_the_number_in_a_node_is_explained_where_a_command_leaves_it_open(cli: Cli) -> None:
    legend = "  N: the number of the device's node, for an NPU what `npu-smi info -m` shows on the host"
    Path("x.log").write_text("ImportError: libascend_hal.so: cannot open shared object file: No such file\n")
    out = cli("doctor", "--log", "x.log", width=200).out
    assert "docker run --device /dev/davinciN --device /dev/davinci_manager" in out
    assert legend in out
    Path("x.log").write_text(GATED)
    assert legend not in cli("doctor", "--log", "x.log", width=200).out
