"""Regional compilation on the CPU: eager at first, the same values ever after, and no harm without a compiler."""

import logging
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from vllm_probe.core.primitive import Compiled, CompileHints, Primitive
from vllm_probe.core.system import CommandResult
from vllm_probe.host.local import LocalHost
from vllm_probe.vendors.cpu.adapter import CpuAdapter
from vllm_probe.vendors.cpu.probe import probe
from vllm_probe.vendors.torchbase.compiling import Region, Toolchain, Workshop
from vllm_probe.vendors.torchbase.keeping import open_folder

HOST = LocalHost()
needs_compiler = pytest.mark.skipif(HOST.which("g++") is None, reason="no g++ on PATH")
COMPILES_S = 240.0


class WithoutCompiler(LocalHost):
    """A machine without a C++ compiler."""

    def which(self, program: str) -> str | None:
        return None if program == "g++" else super().which(program)


class Counting(LocalHost):
    """A machine that counts the commands it runs."""

    asked = 0

    def run(self, argv: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None) -> CommandResult:
        self.asked += 1
        return super().run(argv, timeout_s, env)


def opened(host: LocalHost = HOST) -> CpuAdapter:
    adapter = CpuAdapter(host)
    adapter.set_device(probe(HOST).devices[0])
    adapter.open()
    return adapter


def gated(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Some glue of a model."""
    first, second = rows.chunk(2, -1)
    return torch.nn.functional.silu(first) * second * weight


def glue(dtype: torch.dtype, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    return (
        torch.randn(rows, 64, generator=generator).to(dtype),
        torch.randn(32, generator=generator).to(dtype),
    )


def finish(adapter: CpuAdapter) -> None:
    assert adapter._workshop is not None
    assert adapter._workshop.finish(COMPILES_S)


def replaced(compiled: Compiled) -> list[Callable[..., Any]]:
    """What runs in place of the function, by kind of arguments."""
    assert isinstance(compiled.function, Region)
    return [each for each in compiled.function._known.values() if each is not compiled.function._function]


@needs_compiler
@pytest.mark.timeout(2 * COMPILES_S)
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # torch's own, while it imports its compiler
def test_compiled_glue_gives_the_same_at_any_rows_and_is_kept_for_the_next_process(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    adapter = opened()
    compiled = adapter.compile_model(gated, CompileHints(folder=tmp_path))
    assert compiled.backend == "inductor"
    assert compiled.reason.endswith(f"mode default, kept in {next(tmp_path.iterdir())}")
    assert adapter.compile_model(gated, CompileHints(folder=tmp_path)).function is compiled.function
    with torch.inference_mode():
        operands = glue(torch.bfloat16, 8)
        assert torch.equal(compiled.function(*operands), gated(*operands))  # eager as yet
        finish(adapter)
        assert len(replaced(compiled)) == 1
        before = len([*tmp_path.rglob("*.so")])
        assert before
        for rows in (2, 3, 64, 1000, 1, 0):
            operands = glue(torch.bfloat16, rows)
            torch.testing.assert_close(compiled.function(*operands), gated(*operands), rtol=2e-2, atol=2e-2)
        assert len([*tmp_path.rglob("*.so")]) == before, "another number of rows was compiled for"
    adapter.close()
    assert (next(tmp_path.iterdir()) / "seal.json").exists()


@needs_compiler
@pytest.mark.timeout(2 * COMPILES_S)
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_primitives_are_compiled_where_there_is_a_folder_for_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    host = Counting()
    adapter = opened(host)
    assert not any("inductor" in adapter.implementations(primitive, "bf16") for primitive in Primitive)
    assert adapter.settle(0)
    adapter.compile_folder = tmp_path
    compiled = {each for each in Primitive if "inductor" in adapter.implementations(each, "bf16")}
    assert compiled == {Primitive.ROPE, Primitive.RMS_NORM, Primitive.QUANTIZE}
    heads, angles = adapter.random((12, 3, 32), "fp32", 1), adapter.random((12, 16), "fp32", 2)
    rows, weight = adapter.random((40, 64), "fp32", 3), adapter.random((64,), "fp32", 4)

    def results(name: str) -> list[torch.Tensor]:
        quants, scales = adapter.quantize(rows, implementation=name)
        rope = adapter.rope(heads, angles.cos(), angles.sin(), implementation=name)
        return [rope, adapter.rms_norm(rows, weight, 1e-6, implementation=name), quants, scales]

    with torch.inference_mode():
        expected = results("eager")
        for result, exact in zip(results("inductor"), expected, strict=True):
            assert torch.equal(result, exact)  # it is the same as yet
        assert adapter.settle(COMPILES_S)
        assert all(
            each is not region._function for region in adapter._regions.values() for each in region._known.values()
        )
        for result, exact in zip(results("inductor"), expected, strict=True):
            torch.testing.assert_close(result, exact)
    assert host.asked == 1, "the compiler is asked for its version again and again"
    adapter.close()


@pytest.fixture
def workshop() -> Iterator[Workshop]:
    workshop = Workshop(open_folder(HOST, None, "k"))
    yield workshop
    if workshop.place.path.exists():
        workshop.close()
    assert not workshop.place.path.exists()


def region(function: Callable[..., Any], compiled: Callable[..., Any], workshop: Workshop) -> Region:
    """A region whose compiler is a stand-in that gives `compiled`."""
    made = Region(function, function, CompileHints(), Toolchain(name="stand-in"), workshop)
    made._compiled = compiled
    return made


def test_calls_are_eager_while_the_compiler_works_and_compiled_when_it_is_done(workshop: Workshop) -> None:
    ready, seen = threading.Event(), []

    def slow(rows: torch.Tensor) -> torch.Tensor:
        ready.wait(30)
        seen.append(len(rows))
        return rows * 2

    doubled = region(lambda rows: rows + rows, slow, workshop)
    assert doubled(torch.ones(3)).tolist() == [2, 2, 2]
    assert not seen
    ready.set()
    assert workshop.finish(30)
    assert doubled(torch.ones(4)).tolist() == [2, 2, 2, 2]
    assert seen == [3, 4]
    doubled(torch.ones(1))  # a size of one is a constant to a compiler
    assert seen == [3, 4]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (lambda rows: rows * 2.1, "its result is off by 5.0e-02"),
        (lambda rows: rows * torch.nan, "its result is off by nan"),
        (lambda rows: rows[1:] * 2, r"gives torch.float32 \[2\] and not torch.float32 \[3\]"),
        (lambda rows: (rows * 2).half(), r"gives torch.float16 \[3\]"),
        (lambda rows: [rows][len(rows)], "IndexError"),
    ],
)
def test_what_differs_from_eager_or_fails_is_never_used_and_said_once(
    workshop: Workshop, caplog: pytest.LogCaptureFixture, wrong: Callable[..., Any], reason: str
) -> None:
    doubled = region(lambda rows: rows + rows, wrong, workshop)
    for _ in range(3):
        assert doubled(torch.ones(3)).tolist() == [2, 2, 2]
        assert workshop.finish(30)
    assert len(caplog.records) == 1
    assert caplog.records[0].levelno == logging.WARNING
    assert re.search(f"stays eager: .*{reason}", caplog.records[0].getMessage())


def test_what_compiled_code_depends_on_is_compiled_for_apart_and_not_without_end(workshop: Workshop) -> None:
    seen = []

    def compiled(rows: torch.Tensor, factor: float) -> torch.Tensor:
        seen.append((rows.dtype, *rows.shape, *rows.stride(), factor))
        return rows * factor

    scaled = region(lambda rows, factor: rows * factor, compiled, workshop)
    wide = torch.ones(5, 8)
    for rows, factor in ((wide, 2.0), (wide.half(), 2.0), (wide[:, :4], 2.0), (wide, 3.0), (torch.ones(6, 8), 2.0)):
        scaled(rows, factor)
    assert workshop.finish(30)
    assert len({(kind[0], *kind[2:]) for kind in seen}) == 4  # the number of rows is none
    for factor in range(20):
        scaled(wide, float(factor))
    assert workshop.finish(30)
    assert len(scaled._known) == 8


def test_a_function_that_changes_its_operands_later_does_not_disturb_the_comparison(workshop: Workshop) -> None:
    ready = threading.Event()

    def slow(rows: torch.Tensor) -> torch.Tensor:
        ready.wait(30)
        return rows * 2

    doubled, rows = region(lambda rows: rows + rows, slow, workshop), torch.ones(3)
    doubled(rows)
    rows.fill_(torch.nan)
    ready.set()
    assert workshop.finish(30)
    assert [*doubled._known.values()] == [slow]


def test_closing_waits_for_what_has_begun_and_drops_the_rest(workshop: Workshop) -> None:
    begun, go, done = threading.Event(), threading.Event(), []

    def first() -> None:
        begun.set()
        go.wait(30)
        done.append("first")

    workshop.submit(first)
    workshop.submit(lambda: done.append("second"))
    assert begun.wait(30)
    closing = threading.Thread(target=workshop.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    go.set()
    closing.join(30)
    assert done == ["first"]


def test_a_process_that_ends_while_something_is_compiled_ends_in_peace() -> None:
    script = (
        "import threading, time\n"
        "from vllm_probe.host.local import LocalHost\n"
        "from vllm_probe.vendors.torchbase.compiling import Workshop\n"
        "from vllm_probe.vendors.torchbase.keeping import open_folder\n"
        "workshop = Workshop(open_folder(LocalHost(), None, 'k'))\n"
        "print(workshop.place.path)\n"
        "def until_exit():\n"
        "    while threading.main_thread().is_alive():\n"
        "        time.sleep(0.01)\n"
        "workshop.submit(until_exit)\n"
        "workshop.submit(lambda: print('what had not begun'))\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    (folder,) = ended.stdout.splitlines()
    assert not Path(folder).exists()


def test_without_a_compiler_the_function_stays_as_it_is_and_that_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    adapter = opened(WithoutCompiler())
    for _ in range(3):
        compiled = adapter.compile_model(gated, CompileHints())
        assert compiled.function is gated
        assert (compiled.backend, compiled.reason) == (
            None,
            "inductor needs a C++ compiler and there is no g++ on PATH",
        )
    assert [record.getMessage() for record in caplog.records] == [f"nothing is compiled: {compiled.reason}"]
    adapter.close()


def test_a_torch_that_keeps_its_work_elsewhere_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._inductor.runtime.cache_dir_utils", None)
    adapter = opened()
    compiled = adapter.compile_model(gated, CompileHints())
    assert compiled.function is gated
    assert compiled.reason.startswith("this torch is too old: import of torch._inductor")
    adapter.close()
