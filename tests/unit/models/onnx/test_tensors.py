"""A tensor is believed only as far as its dimensions, format and place agree, and no file but the graph is opened."""

import os
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto

from vllm_probe.core.errors import InvalidModel
from vllm_probe.models.onnx.tensors import BITS, TensorReader


def tensor(*dims: int, kind: int = TensorProto.FLOAT, raw: bytes = b"", **external: Any) -> TensorProto:
    made = TensorProto(name="w", dims=dims, data_type=kind)
    if external:
        made.data_location = TensorProto.EXTERNAL
        for key, value in external.items():
            made.external_data.add(key=key, value=str(value))
    elif raw:
        made.raw_data = raw
    return made


def read(folder: Path, each: TensorProto) -> tuple[int, int]:
    found = TensorReader(folder / "model.onnx").read(each, "w")
    return found.num_elements, found.nbytes


def test_every_format_of_the_package_has_its_bits() -> None:
    formats = set(onnx.TensorProto.DataType.values()) - {TensorProto.UNDEFINED, TensorProto.STRING}
    assert formats <= set(BITS)


@pytest.mark.parametrize(
    ("kind", "dims", "nbytes"),
    [
        (TensorProto.FLOAT, (3, 5), 60),
        (TensorProto.BFLOAT16, (3, 5), 30),
        (TensorProto.INT4, (3, 5), 8),
        (TensorProto.FLOAT8E4M3FN, (3, 5), 15),
        (TensorProto.DOUBLE, (), 8),
        (TensorProto.FLOAT, (0, 5), 0),
    ],
)
def test_bytes_follow_from_dimensions_and_format(tmp_path: Path, kind: int, dims: tuple[int, ...], nbytes: int) -> None:
    assert read(tmp_path, tensor(*dims, kind=kind))[1] == nbytes


@pytest.mark.parametrize(
    ("each", "reason"),
    [
        (tensor(-1, 4), r"dimensions \[-1, 4\]"),
        (tensor(1 << 62, 4), "dimensions"),
        (tensor(*[2] * 63), "dimensions"),
        (tensor(*[1] * 33), "dimensions"),
        (tensor(2, kind=99), "number format 99"),
        (tensor(2, kind=0), "number format 0"),
        (tensor(2, 2, raw=b"abc"), "3 bytes where its dimensions and format make 16"),
        (tensor(2, 2, location="w.bin", length=15), "15 bytes where"),
        (tensor(2, 2, inline_length=15), "15 bytes where"),
        (tensor(2, 2, location="../w.bin"), "no place beside the model"),
        (tensor(2, 2, location="a/../../w.bin"), "no place beside the model"),
        (tensor(2, 2, location="/etc/passwd"), "no place beside the model"),
        (tensor(2, 2, location="\\\\host\\share"), "no place beside the model"),
        (tensor(2, 2, location="..\\w.bin"), "no place beside the model"),
        (tensor(2, 2, location="C:\\w.bin"), "no place beside the model"),
        (tensor(2, 2, location="a\0b"), "no place beside the model"),
        (tensor(2, 2, location=""), "no place beside the model"),
        (tensor(2, 2, location="w.bin", offset="-1"), "no place beside the model"),
        (tensor(2, 2, location="w.bin", offset="1" * 30), "no place beside the model"),
        (tensor(2, 2, location="w.bin", length="many"), "no place beside the model"),
    ],
)
def test_what_contradicts_itself_or_leaves_the_folder_is_refused(
    tmp_path: Path, each: TensorProto, reason: str
) -> None:
    with pytest.raises(InvalidModel, match=reason):
        read(tmp_path, each)


def test_values_must_lie_inside_of_their_file(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(100))
    assert read(tmp_path, tensor(5, 5, location="w.bin"))[1] == 100
    with pytest.raises(InvalidModel, match=r"end at byte 104 of w\.bin, which has 100"):
        read(tmp_path, tensor(5, 5, location="w.bin", offset=4))


def test_a_file_with_values_need_not_be_there(tmp_path: Path) -> None:
    assert read(tmp_path, tensor(5, 5, location="sub/w.bin"))[1] == 100


def test_a_pipe_in_the_place_of_values_is_refused_and_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "w.bin")
    with pytest.raises(InvalidModel, match="not a file"):
        read(tmp_path, tensor(5, 5, location="w.bin"))
