"""Every command of docs/guides/first-adapter.md, run in the order of the page."""

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "first-adapter.md"
SITE = next(path for path in map(Path, sys.path) if path.name == "site-packages")


def commands() -> list[str]:
    return re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def environment(root: Path) -> dict[str, str]:
    """That of a newcomer: an environment of their own that sees what is installed here, and an empty home."""
    venv.create(root / "env", with_pip=True)
    (site,) = (root / "env").glob("lib/python*/site-packages")
    (site / "ours.pth").write_text(f"import site; site.addsitedir({str(SITE)!r})\n", encoding="utf-8")
    command = root / "env" / "bin" / "vllm-probe"
    command.write_text('#!/bin/sh\nexec python -m vllm_probe "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("VLLM_PROBE", "PYTHON", "XDG"))}
    (root / "home").mkdir()
    path = f"{root / 'env' / 'bin'}{os.pathsep}{kept['PATH']}"
    return kept | {"PATH": path, "HOME": str(root / "home"), "COLUMNS": "120", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def test_the_page_goes_from_a_scaffold_to_a_config() -> None:
    text = "\n".join(commands())
    steps = (
        "adapter new",
        "pip install",
        "adapter list",
        "adapter check",
        "bench --device acme:0",
        "negotiate",
        "pytest",
    )
    assert [step for step in steps if step not in text] == []
    assert [text.index(step) for step in steps] == sorted(text.index(step) for step in steps)


@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform == "win32", reason="the page is for a POSIX shell")
def test_every_command_of_the_page_works(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    steps = "".join(f"{block}echo '=== done ==='\n" for block in commands())
    ended = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", steps],
        cwd=tmp_path / "here",
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    offline = re.search("No matching distribution|NewConnectionError|ConnectionError|Temporary failure", ended.stdout)
    if offline and not os.environ.get("REQUIRE_ALL"):
        pytest.skip("the build tool of the package comes from an index, which cannot be reached")
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.count("=== done ===") == len(commands())
    failed, right = (line for line in ended.stdout.splitlines() if re.match("(FAIL|PASS) +rms_norm", line))
    assert failed.startswith("FAIL")
    assert right.startswith("PASS")
