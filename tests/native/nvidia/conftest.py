"""NVML and the CUDA driver, built once and loaded where a test asks for it."""

from pathlib import Path

import pytest

from tests.native.build import build
from tests.native.nvidia.machines import HERE
from vllm_probe.vendors.nvidia import asking


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {}
    for name, options in (("new", ()), ("old", ("-DOLD",))):
        folder = tmp_path_factory.mktemp(name)
        build(HERE / "nvml.c", folder / "libnvidia-ml.so.1", *options)
        build(HERE / "cuda.c", folder / "libcuda.so.1")
        folders[name] = folder
    return folders


@pytest.fixture(params=["new"])
def loaded(request: pytest.FixtureRequest, libraries: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(libraries[request.param]))


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_TIMEOUT_S", 60.0)
