from typing import Any

import pytest

from vllm_probe.core import codec
from vllm_probe.core.scene import Scene
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.nvidia.cuda import copy_engines


@pytest.mark.parametrize(
    ("libraries", "engines"),
    [
        ({"libcuda.so.1": {"load": "ok", "calls": {"cuDeviceGet": 0, "async_engine_count": 2}}}, 2),
        ({"libcuda.so.1": {"load": "ok", "calls": {}}}, None),
        ({}, None),
    ],
)
def test_the_driver_tells_how_many_engines_copy(libraries: dict[str, Any], engines: int | None) -> None:
    host = ReplayHost(codec.from_json(Scene, {"facts": {"libs": libraries}}))
    assert copy_engines(host, 0) == engines
