"""A long step shows where it is: a bar on a terminal, else one line per step."""

import pytest

from vllm_probe.cli.render.progress import begins, lines


def test_a_step_is_named_when_it_begins_so_that_the_last_line_is_the_one_that_hangs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with begins("check") as advance:
        advance("rope", 0, 2)
        advance("rms_norm", 1, 2)
        assert capsys.readouterr().err.endswith("check 2/2: rms_norm\n")


def test_a_pipe_gets_one_line_for_each_step_whatever_its_parts(capsys: pytest.CaptureFixture[str]) -> None:
    with lines("load") as advance:
        for done in range(41):
            advance("weights, MiB", done, 40)
        advance("layer 1", 0, 2)
        advance("layer 2", 1, 2)
        advance("ready", 2, 2)
    assert capsys.readouterr().err == "load 40/40: weights, MiB\nload 1/2: layer 1\nload 2/2: layer 2\n"
