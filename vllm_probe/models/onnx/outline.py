"""An ONNX file without the values of its tensors, in bounded time and memory.

Protobuf's parser takes some hundred bytes for a message that takes two in the file, and copies every weight. This walk
over the wire format, https://protobuf.dev/programming-guides/encoding, counts fields first and leaves weights out; what
the fields mean is left to the parser.
"""

from typing import TYPE_CHECKING, Any, TypeAlias

from vllm_probe.core.errors import InvalidModel

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

MAX_FIELDS = 2_000_000
MAX_KEPT_BYTES = 32 << 20
MAX_VALUE_BYTES = 4096
LENGTH_KEY = "inline_length"
"""Key of the `external_data` entry that stands for values left out."""

_MAX_DEPTH = 100  # protobuf's own limit of nested messages
_MAX_SHIFT = 63
_VALUES = {"raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data"}
_NOTES = {"doc_string", "metadata_props", "training_info"}
_FIXED = {1: 8, 5: 4}  # wire type to bytes
_TENSOR = "onnx.TensorProto"

_Rules: TypeAlias = dict[int, Any]


def outline(data: memoryview, schema: "Descriptor", source: str) -> bytes:
    """The message `data` of type `schema` without comments and without tensor values of over `MAX_VALUE_BYTES`.

    A tensor whose values are left out says their length in an `external_data` entry under `LENGTH_KEY`.

    Args:
        data: a serialized `ModelProto`.
        schema: its descriptor.
        source: path, for messages.

    Raises:
        InvalidModel: not protobuf, truncated, names that are not UTF-8, or more than `MAX_FIELDS` fields,
            `MAX_KEPT_BYTES` bytes or 100 levels.
    """
    return _Walk(data, source).message(0, len(data), schema, 0)


class _Walk:
    def __init__(self, data: memoryview, source: str) -> None:
        self._data, self._source = data, source
        self._fields = self._kept = 0
        self._rules: dict[str, _Rules] = {}

    def message(self, at: int, end: int, schema: "Descriptor", depth: int) -> bytes:
        """The fields between `at` and `end` that are kept."""
        if depth > _MAX_DEPTH:
            raise self._invalid(f"messages are nested deeper than {_MAX_DEPTH} levels")
        rules, parts, left_out, run = self._rules_of(schema), list[bytes](), 0, at
        while at < end:
            begin = at
            key, at = self._varint(at, end)
            if key < 8:
                raise self._invalid(f"byte {begin} begins no field")
            self._fields += 1
            if self._fields > MAX_FIELDS:
                raise self._invalid(f"more than {MAX_FIELDS} nodes, names and other fields")
            size, at = self._size(key & 7, at, end)
            rule, stop = rules.get(key >> 3) if key & 7 == 2 else None, at + size
            if rule == "text":
                self._check_text(at, stop)
                rule = None
            is_value = rule == "value" and size > MAX_VALUE_BYTES
            if rule is not None and (rule != "value" or is_value):
                parts.append(self._keep(run, begin))
                run = stop
                left_out += size if is_value else 0
                if not isinstance(rule, str):
                    body = self.message(at, stop, rule, depth + 1)
                    parts += [_bytes(key), _bytes(len(body)), body]
            at = stop
        parts.append(self._keep(run, end))
        if left_out:
            parts.append(_stand_in(left_out))
        return b"".join(parts)

    def _keep(self, begin: int, end: int) -> bytes:
        self._kept += end - begin
        if self._kept > MAX_KEPT_BYTES:
            raise self._invalid(f"over {MAX_KEPT_BYTES} bytes besides the values of tensors")
        return bytes(self._data[begin:end])

    def _check_text(self, at: int, stop: int) -> None:
        try:
            str(self._data[at:stop], "utf-8")
        except UnicodeDecodeError as error:
            raise self._invalid(f"the name at byte {at} is not UTF-8") from error

    def _size(self, wire: int, at: int, end: int) -> tuple[int, int]:
        """Bytes of a field's content, and where it begins."""
        if wire == 0:
            size = self._varint(at, end)[1] - at
        elif wire == 2:
            size, at = self._varint(at, end)
        elif wire in _FIXED:
            size = _FIXED[wire]
        else:
            raise self._invalid(f"byte {at} begins no field")
        if size > end - at:
            raise self._invalid(f"a field of {size} bytes where {end - at} are left")
        return size, at

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        data, value, shift = self._data, 0, 0
        while at < end and shift <= _MAX_SHIFT:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value, at
            shift += 7
        raise self._invalid(f"a number ends at byte {at} before it is complete")

    def _rules_of(self, schema: "Descriptor") -> _Rules:
        """Field number to the type of its messages, `note` for what is dropped, `value` of a tensor, or `text`."""
        if schema.full_name not in self._rules:
            rules: _Rules = {}
            for field in schema.fields:
                if field.name in _NOTES:
                    rules[field.number] = "note"
                elif schema.full_name == _TENSOR and field.name in _VALUES:
                    rules[field.number] = "value"
                elif field.message_type is not None:
                    rules[field.number] = field.message_type
                elif field.type == field.TYPE_STRING:
                    rules[field.number] = "text"
            self._rules[schema.full_name] = rules
        return self._rules[schema.full_name]

    def _invalid(self, reason: str) -> InvalidModel:
        message = f"{self._source} is not an ONNX graph that can be read: {reason}"
        return InvalidModel(message, hint="the file is damaged, incomplete or not ONNX; export or get it again")


def _bytes(value: int) -> bytes:
    """`value` as a varint."""
    digits = []
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])


def _stand_in(nbytes: int) -> bytes:
    """Fields of a `TensorProto` whose values are elsewhere; appended to others they are merged with them."""
    import onnx

    entry = onnx.StringStringEntryProto(key=LENGTH_KEY, value=str(nbytes))
    tensor = onnx.TensorProto(data_location=onnx.TensorProto.EXTERNAL, external_data=[entry])
    return bytes(tensor.SerializeToString())
