"""A GGUF header is believed only as far as the file bears it out, and its vocabulary is passed over."""

import io
import os
import struct
import tracemalloc
from collections import deque
from itertools import repeat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.gguf import one_input
from tests.unit.models.gguf_files import LETTERS, NUMBERS, entry, gguf, header, key, payload, size_of, text
from vllm_probe.core.errors import InvalidModel, UnreadableFile, UnsupportedModel
from vllm_probe.models.gguf import TYPES, is_first_part, model_name, read_gguf
from vllm_probe.models.gguf_stream import MAX_READ_BYTES, Stream

SMALL = {"general.architecture": "llama", "llama.block_count": 2}
TENSORS = {"token_embd.weight": ("Q4_K", (3, 512)), "blk.0.attn_norm.weight": ("F32", (5,))}


def put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def read_bytes(content: bytes, tmp_path: Path) -> dict[str, object]:
    return read_gguf(put(tmp_path / "m.gguf", content)).metadata


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("order", ["<", ">"])
def test_both_versions_are_read_in_both_byte_orders(tmp_path: Path, version: int, order: str) -> None:
    metadata = {**SMALL, "a.list": [1, 2, 3], "a.text": "é", "a.flag": True, "a.float": 0.5, "a.negative": -7}
    file = read_gguf(put(tmp_path / "m.gguf", gguf(metadata, TENSORS, order=order, version=version)))
    assert (file.version, file.metadata) == (version, metadata)
    assert {name: (t.dtype, t.shape, t.begin, t.nbytes) for name, t in file.tensors.items()} == {
        "token_embd.weight": ("Q4_K", (3, 512), 0, 864),
        "blk.0.attn_norm.weight": ("F32", (5,), 864, 20),
    }


@pytest.mark.parametrize("number", TYPES)
def test_every_type_of_tensor_has_its_bytes(tmp_path: Path, number: int) -> None:
    word, block, nbytes = TYPES[number]
    file = read_gguf(put(tmp_path / "m.gguf", gguf({}, {"w": (word, (3, 2, 2 * block))})))
    assert file.tensors["w"].nbytes == 12 * nbytes


def test_types_have_the_bits_that_their_names_promise() -> None:
    bits = {word: 8 * nbytes / block for word, block, nbytes in TYPES.values()}
    known = {"Q8_0": 8.5, "Q6_K": 6.5625, "Q5_K": 5.5, "Q5_0": 5.5, "Q4_K": 4.5, "Q4_0": 4.5, "Q3_K": 3.4375}
    assert bits | known | {"Q2_K": 2.625, "IQ4_XS": 4.25, "MXFP4": 4.25, "NVFP4": 4.5, "BF16": 16} == bits


@pytest.mark.parametrize("kind", LETTERS)
def test_every_type_of_number_is_read_alone_and_in_an_array(tmp_path: Path, kind: int) -> None:
    value = struct.unpack("<" + LETTERS[kind], struct.pack("<" + LETTERS[kind], 1))[0]
    one = payload(kind, value)
    content = header(0, 2) + key("one", kind, one) + key("many", 9, struct.pack("<IQ", kind, 3) + 3 * one)
    assert read_bytes(content, tmp_path) == {"one": value, "many": [value] * 3}


def test_arrays_of_texts_and_of_arrays_are_read(tmp_path: Path) -> None:
    metadata = {"languages": ["en", "de"], "nested": [[1, 2], [3]], "empty": []}
    assert read_bytes(gguf(metadata, {}), tmp_path) == metadata


def test_of_a_tokenizer_its_kind_and_ids_are_kept_and_long_arrays_nowhere(tmp_path: Path) -> None:
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": ["x" * length for length in range(300)] * 20,
        "tokenizer.ggml.eos_token_id": 3,
        "tokenizer.chat_template": "y" * 300_000,
        "tokenizer.nested": [[1], [2]],
        "other.long": [1] * 5000,
        "other.text": "z" * 300_000,
        "last": 1,
    }
    found = read_bytes(gguf(metadata, {}), tmp_path)
    assert found == {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.eos_token_id": 3, "last": 1}


def test_a_split_model_is_read_whole_from_any_of_its_files(tmp_path: Path) -> None:
    for number in range(3):
        metadata = {"split.no": number, "split.count": 3, "split.tensors.count": 3, **(SMALL if number == 0 else {})}
        put(tmp_path / f"m-0000{number + 1}-of-00003.gguf", gguf(metadata, {f"w{number}": ("F32", (number + 1,))}))
    for number in (1, 3):
        file = read_gguf(tmp_path / f"m-0000{number}-of-00003.gguf")
        assert file.metadata["general.architecture"] == "llama"
        assert [tensor.nbytes for tensor in file.tensors.values()] == [4, 8, 12]
    assert [
        is_first_part(tmp_path / name) for name in ("m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m.gguf")
    ] == [
        True,
        False,
        True,
    ]
    assert model_name(tmp_path / "m-00002-of-00003.gguf") == model_name(tmp_path / "m.gguf") == "m"


@pytest.mark.parametrize(
    ("second", "error", "reason"),
    [
        (None, UnreadableFile, r"m-00002-of-00002\.gguf: it does not exist"),
        (gguf({"split.no": 0, "split.count": 2}, {}), InvalidModel, "says part 0 of 2"),
        (gguf({"split.no": 1, "split.count": 3}, {}), InvalidModel, "says part 1 of 3"),
        (gguf({"split.no": 1, "split.count": 2}, {"w0": ("F32", (1,))}), InvalidModel, "repeats a tensor"),
        (gguf({"split.no": 1, "split.count": 2}, {}), InvalidModel, "1 of 2 tensors"),
        (b"GGUF", InvalidModel, "middle of a value"),
    ],
)
def test_a_split_model_is_held_to_its_parts(
    tmp_path: Path, second: bytes | None, error: type[Exception], reason: str
) -> None:
    metadata = {"split.no": 0, "split.count": 2, "split.tensors.count": 2}
    first = put(tmp_path / "m-00001-of-00002.gguf", gguf(metadata, {"w0": ("F32", (1,))}))
    if second is not None:
        put(tmp_path / "m-00002-of-00002.gguf", second)
    with pytest.raises(error, match=reason):
        read_gguf(first)


def test_parts_under_other_names_and_parts_that_cannot_be_are_refused(tmp_path: Path) -> None:
    content = gguf({"split.no": 0, "split.count": 2}, {})
    with pytest.raises(InvalidModel, match="a part of 2 under another name"):
        read_gguf(put(tmp_path / "m.gguf", content))
    for name in ("m-00003-of-00002.gguf", "m-00000-of-00002.gguf"):
        with pytest.raises(InvalidModel, match="there is no part"):
            read_gguf(put(tmp_path / name, content))


def test_links_that_lead_in_a_circle_and_parts_that_are_one_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").symlink_to("n.gguf")
    (tmp_path / "n.gguf").symlink_to("m.gguf")
    with pytest.raises(UnreadableFile):
        read_gguf(tmp_path / "m.gguf")
    first = put(tmp_path / "s-00001-of-00002.gguf", gguf({"split.no": 0, "split.count": 2}, {}))
    (tmp_path / "s-00002-of-00002.gguf").symlink_to(first)
    with pytest.raises(InvalidModel, match="part 0 of 2"):
        read_gguf(first)


def test_a_pipe_a_folder_and_nothing_are_unreadable_and_never_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    for path in (tmp_path / "pipe.gguf", tmp_path, tmp_path / "absent.gguf", tmp_path / "nul\0.gguf"):
        with pytest.raises(UnreadableFile):
            read_gguf(path)


HUGE = (1 << 64) - 1
NESTED = b"".join(struct.pack("<IQ", 9, 1) for _ in range(1000))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "middle of a value"),
        (b"GGML" + bytes(40), "does not begin with GGUF"),
        (b"GGUF\3\0\0\0", "middle of a value"),
        (header(HUGE, 0), "more than a model has"),
        (header(0, HUGE), "more than a model has"),
        (header(0, 2) + 2 * key("a", 4, bytes(4)), "'a' occurs twice"),
        (header(0, 1) + key("a", 13, b""), "type 13"),
        (header(0, 1) + key("a", 7, b"\2"), "truth value"),
        (header(0, 1) + key(b"\xff", 4, bytes(4)), "not UTF-8"),
        (header(0, 1) + key("a", 8, text(b"\xff\xfe")), "not UTF-8"),
        (header(0, 1) + key("a", 8, struct.pack("<Q", HUGE)), "ends at byte"),
        (header(0, 1) + struct.pack("<Q", HUGE), "a string of"),
        (header(0, 1) + key("a", 9, struct.pack("<IQ", 12, HUGE)), "ends at byte"),
        (header(0, 1) + key("a", 9, struct.pack("<IQ", 8, HUGE)), "strings"),
        (header(0, 1) + key("a", 9, struct.pack("<IQ", 8, 1 << 20)), "middle of a value"),
        (header(0, 1) + key("a", 9, struct.pack("<IQ", 9, HUGE)), "arrays"),
        (header(0, 1) + key("a", 9, struct.pack("<IQ", 13, 1)), "array of type 13"),
        (header(0, 1) + key("a", 9, NESTED), "arrays deep"),
        (header(0, 1) + key("general.alignment", 4, struct.pack("<I", 24)), "power of 2"),
        (header(0, 1) + key("general.alignment", 4, bytes(4)), "power of 2"),
        (header(0, 1) + key("general.alignment", 6, struct.pack("<f", float("nan"))), "power of 2"),
        (header(2, 0) + 2 * entry("w", 0, (), 0), "'w' occurs twice"),
        (header(1, 0) + entry("w", 0, (1,) * 5, 0), "5 dimensions"),
        (header(1, 0) + entry("w", 2, (2, 33), 0), "no whole blocks of 32"),
        (header(1, 0) + entry("w", 2, (), 0), "no whole blocks of 32"),
        (header(1, 0) + entry("w", 0, (HUGE,) * 4, 0), "truncated"),
        (header(1, 0) + entry("w", 0, (8,), 0), "truncated"),
        (header(1, 0) + entry("w", 0, (1,), 64) + bytes(400), "begins at byte 64 where 0 is due"),
        (header(2, 0) + entry("w", 0, (9,), 0) + entry("v", 0, (1,), 32) + bytes(400), "begins at byte 32 where 64"),
    ],
)
def test_a_header_that_the_format_forbids_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(InvalidModel, match=reason):
        read_gguf(put(tmp_path / "m.gguf", content))


@pytest.mark.parametrize("content", [header(0, 0, version=1), header(0, 0, version=4), header(0, 0, ">", version=9)])
def test_another_version_is_named(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UnsupportedModel, match=r"GGUF version [149]"):
        read_gguf(put(tmp_path / "m.gguf", content))


def test_a_type_that_was_taken_out_again_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="type 31"):
        read_gguf(put(tmp_path / "m.gguf", header(1, 0) + entry("w", 31, (32,), 0)))


class Counting(io.BytesIO):
    """Counts what is read; behind its content come zeros for ever, as in a sparse file."""

    taken = 0

    def read(self, count: int | None = -1) -> bytes:
        assert count is not None
        assert count >= 0
        content = super().read(count)
        content += bytes(count - len(content))
        self.taken += len(content)
        return content


@pytest.mark.parametrize("kind", [8, 9])
def test_a_giant_of_texts_or_arrays_is_refused_before_it_is_read(kind: int) -> None:
    file = Counting(struct.pack("<IIQ", 9, kind, 1 << 40))
    with pytest.raises(InvalidModel, match="an array of 1099511627776"):
        Stream(file, 1 << 63, Path("m.gguf")).value(keeps=True)
    assert file.taken == 1 << 18


def test_a_header_without_end_is_given_up_in_little_memory() -> None:
    file = Counting()
    stream = Stream(file, 1 << 63, Path("m.gguf"))
    tracemalloc.start()
    with pytest.raises(InvalidModel, match="header has more than"):
        deque(map(stream.take, repeat(1 << 16)), maxlen=0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert file.taken <= MAX_READ_BYTES + (1 << 18)
    assert peak < 2 << 20


def test_a_giant_of_numbers_is_passed_over_without_reading_it() -> None:
    file = Counting(struct.pack("<IIQ", 9, 12, 1 << 50) + bytes(64))
    stream = Stream(file, 1 << 63, Path("m.gguf"))
    assert stream.value(keeps=True) is None
    assert (stream.position, file.taken) == (16 + (8 << 50), 1 << 18)


@given(st.binary(max_size=300))
def test_any_bytes_give_a_model_or_a_typed_error(content: bytes) -> None:
    one_input(content)
    one_input(header(1, 1) + content)


@given(st.data())
def test_any_change_of_a_good_file_gives_a_model_or_a_typed_error(data: st.DataObject) -> None:
    content = bytearray(gguf({**SMALL, "llama.list": [1, 2], "llama.names": ["a", "b"]}, TENSORS))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, 300))] = data.draw(st.integers(0, 255))
    one_input(bytes(content[: data.draw(st.integers(0, len(content)))]))


shapes = st.lists(st.integers(0, 3), min_size=1, max_size=4).map(lambda rows: (*rows[:-1], rows[-1] * 256))


@given(st.lists(st.tuples(st.sampled_from(sorted(NUMBERS)), shapes), max_size=5), st.sampled_from([8, 32, 4096]))
def test_what_the_format_allows_is_read_with_exact_bytes(
    tmp_path_factory: pytest.TempPathFactory, tensors: list[tuple[str, tuple[int, ...]]], alignment: int
) -> None:
    named = {f"w{index}": tensor for index, tensor in enumerate(tensors)}
    path = put(tmp_path_factory.mktemp("g") / "m.gguf", gguf({"general.alignment": alignment}, named))
    found = read_gguf(path).tensors
    assert {name: (t.dtype, t.shape, t.nbytes) for name, t in found.items()} == {
        name: (word, shape, size_of(word, shape)) for name, (word, shape) in named.items()
    }
