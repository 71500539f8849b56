"""Read bandwidth of an OpenCL device, by this adapter and by clpeak, in turns; prints both medians and their ratio.

Needs clpeak (`apt-get install clpeak`). clpeak reads with float, float2 ... float16 and the best of them counts; the
adapter reduces an fp32 array that no cache holds, the best of five counts. Both count the bytes that are read.
"""

import argparse
import re
import subprocess
import sys
from statistics import median

import pyopencl as cl

from vllm_probe.host.local import LocalHost
from vllm_probe.vendors.registry import PortableDeviceManager
from vllm_probe_opencl.adapter import OpenClAdapter
from vllm_probe_opencl.tensor import ClTensor

_BYTES = 128 << 20  # of clpeak on a CPU: https://github.com/krrishnarraj/clpeak/blob/master/src/common.cpp
_READS, _WIDTHS = 10, 5
_CLOSE = 0.1
_WIDTH = re.compile(r"^\s*float\d*\s*:\s*([0-9.]+)\s*$", re.MULTILINE)


def opened(device_id: str) -> OpenClAdapter:
    """The adapter of `device_id`, open."""
    manager = PortableDeviceManager.discover(LocalHost())
    device = next(device for device in manager.probe_devices().devices if device.id == device_id)
    adapter = manager.adapter_for(device)
    assert isinstance(adapter, OpenClAdapter)
    adapter.open()
    return adapter


def ours(adapter: OpenClAdapter, array: ClTensor) -> float:
    """The best of as many batches as clpeak has vector widths, 1e9 bytes per second."""
    batches = [adapter.time_batch([lambda: adapter.read(array)] * _READS) for _ in range(_WIDTHS)]
    return _READS * array.nbytes / min(batches) / 1e9


def theirs(adapter: OpenClAdapter) -> float:
    """The best of clpeak's global memory bandwidths, 1e9 bytes per second."""
    places = [(p, d) for p, platform in enumerate(cl.get_platforms()) for d in range(len(platform.get_devices()))]
    platform, device = places[adapter.device.indices["opencl"]]
    command = ["clpeak", "--global-bandwidth", "-p", str(platform), "-d", str(device)]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    return max(float(value) for value in _WIDTH.findall(text))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="opencl:0")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    adapter = opened(options.device)
    array = adapter.random((_BYTES // 4,), "fp32", seed=1)
    ours(adapter, array)  # compiles the kernels
    rounds = []
    for _ in range(options.rounds):
        mine, peer = ours(adapter, array), theirs(adapter)
        print(f"adapter {mine:6.2f} GB/s   clpeak {peer:6.2f} GB/s   ratio {mine / peer:.2f}", flush=True)
        rounds.append((mine, peer))
    adapter.close()
    ratio = median(mine / peer for mine, peer in rounds)
    print(f"median: adapter {median(r[0] for r in rounds):.2f}, clpeak {median(r[1] for r in rounds):.2f} GB/s")
    print(f"median ratio {ratio:.3f}: {'within' if abs(ratio - 1) <= _CLOSE else 'not within'} 10 % of clpeak")
    return 0 if abs(ratio - 1) <= _CLOSE else 1


if __name__ == "__main__":
    sys.exit(main())
