"""Fuzz target: bytes as an ONNX file, through the shape of the model that they describe."""

from pathlib import Path

from tests.fuzz.runner import main
from vllm_probe.core.errors import InvalidModel, UnsupportedModel
from vllm_probe.models.onnx.reader import read_graph
from vllm_probe.models.onnx.spec import describe

_NOWHERE = Path("nowhere", "model.onnx")


def one_input(content: bytes) -> None:
    """Reads `content`; any other failure than the typed ones is a finding."""
    try:
        describe(read_graph(memoryview(content), _NOWHERE), _NOWHERE)
    except (InvalidModel, UnsupportedModel):
        return


if __name__ == "__main__":
    main(one_input)
