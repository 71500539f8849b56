"""An ONNX file to a `ModelSpec`: its graph, and the config.json that exporters leave beside it.

`onnx.shape_inference` is not called. On a graph made to harm, version 1.23 ends the process, by an assertion in the
inference of `Slice`; and what is asked here follows from weights and from the reshapes around attention.
"""

import mmap
import stat
from pathlib import Path

from vllm_probe.core.errors import InvalidModel, MissingExtra, UnreadableFile
from vllm_probe.core.extras import extra_command
from vllm_probe.core.model import ModelSpec
from vllm_probe.core.units import format_bytes
from vllm_probe.models.files import mode_of
from vllm_probe.models.onnx.expand import Expander
from vllm_probe.models.onnx.findings import Findings, find
from vllm_probe.models.onnx.outline import outline
from vllm_probe.models.onnx.spec import describe

MAX_INLINE_BYTES = 512 << 20


def read_onnx(path: Path) -> ModelSpec:
    """The model whose graph is in the file at `path`; of tensors only dimensions and places are read.

    Layers and heads are those of `config.json` in the same folder or the one above where it describes this graph, else
    what the graph itself tells; what neither tells is in `unknown`. `needs` names the checkpoint that an engine takes.

    Raises:
        MissingExtra: the package onnx is not installed.
        UnreadableFile: no such file, not permitted, or more than `MAX_INLINE_BYTES` with the weights inside.
        InvalidModel: not ONNX, damaged, or values outside of its folder.
        UnsupportedModel: a graph without attention that can be recognised, and no config.json.
        InvalidJson: a config.json that is not JSON.
    """
    mode = mode_of(path)
    if not stat.S_ISREG(mode):
        reason = "there is no such file" if not mode else "not a file"
        raise UnreadableFile(f"cannot read {path}: {reason}", hint="give the .onnx file of a model")
    try:
        with path.open("rb") as file:
            _check_size(path, path.stat().st_size)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data, memoryview(data) as view:
                findings = read_graph(view, path)
    except OSError as error:
        raise UnreadableFile(f"cannot read {path}: {error.strerror}", hint="check its permissions") from error
    return describe(findings, path)


def read_graph(data: memoryview, path: Path) -> Findings:
    """What the serialized model `data` tells; `path` names it, and values in other files are looked for beside it.

    Raises:
        MissingExtra, InvalidModel: as `read_onnx`.
        UnreadableFile: a file with values may not be looked at.
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ModuleNotFoundError as error:
        message = f"reading {path} needs the Python package {error.name!r}, which is not installed"
        raise MissingExtra(message, hint=f"{extra_command('onnx')} brings it") from error
    hint = "the file is damaged or not ONNX; export or get it again"
    try:
        model = onnx.ModelProto.FromString(outline(data, onnx.ModelProto.DESCRIPTOR, str(path)))
        expander = Expander(path)
        graph = expander.write(model)
    except DecodeError as error:
        raise InvalidModel(f"{path} is not an ONNX graph that can be read: {error}", hint=hint) from error
    if not graph.nodes:
        raise InvalidModel(f"{path} holds no operators", hint=hint)
    return find(graph)


def _check_size(path: Path, size: int) -> None:
    if size > MAX_INLINE_BYTES:
        message = f"{path} has {format_bytes(size)} with its weights inside, over {format_bytes(MAX_INLINE_BYTES)}"
        hint = "export it with external data: onnx.save_model(model, path, save_as_external_data=True)"
        raise UnreadableFile(message, hint=hint)
    if size == 0:
        raise InvalidModel(f"{path} is empty", hint="export or get it again")
