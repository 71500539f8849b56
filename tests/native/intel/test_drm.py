"""The ioctls of i915 and xe through the real fcntl, against a driver written with the kernel's structures in C."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.native.build import build

HERE = Path(__file__).parent
MIB = 1 << 20
ASK = """
import json, sys
from vllm_probe.host.local import LocalHost
from vllm_probe.vendors.intel import drm
name, version = drm.version(LocalHost(), sys.argv[1])
memory = drm.memory(LocalHost(), sys.argv[1], name)
print(json.dumps([name, version, memory and memory._asdict()]))
"""


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(HERE / "drm.c", tmp_path_factory.mktemp("drm") / "drm.so", "-ldl")


def told(driver: Path, node: Path, mode: str) -> Any:
    node.touch()
    env = os.environ | {"LD_PRELOAD": str(driver), "FAKE_DRM": mode}
    ended = subprocess.run(
        [sys.executable, "-c", ASK, str(node)], env=env, capture_output=True, check=True, text=True, timeout=250
    )
    return json.loads(ended.stdout)


@pytest.mark.parametrize("interrupted", ["", " interrupted"])
@pytest.mark.parametrize(
    ("mode", "sizes"),
    [
        ("i915", (True, 16288 * MIB, None, 256 * MIB, 1)),
        ("i915 perfmon", (True, 16288 * MIB, 3600 * MIB, 256 * MIB, 1)),
        ("i915 tiles", (True, 32576 * MIB, None, None, 2)),
        ("xe", (True, 12216 * MIB, None, 12216 * MIB, 1)),
        ("xe perfmon", (True, 12216 * MIB, 24 * MIB, 12216 * MIB, 1)),
        ("xe integrated", (False, 65536 * MIB, None, None, 0)),
    ],
)
def test_the_driver_tells_its_memory(
    driver: Path, tmp_path: Path, mode: str, interrupted: str, sizes: tuple[object, ...]
) -> None:
    memory = dict(zip(("local", "total", "used", "reachable", "tiles"), sizes, strict=True))
    assert told(driver, tmp_path / "node", mode + interrupted) == [mode.partition(" ")[0], "1.6.0", memory]


def test_a_negative_length_is_a_refusal(driver: Path, tmp_path: Path) -> None:
    assert told(driver, tmp_path / "node", "i915 refuses") == ["i915", "1.6.0", None]
