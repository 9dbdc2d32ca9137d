"""Protocol-buffer wire format, as far as it takes to read and write large tensors without copying them.

protobuf copies every bytes field when it parses, again when Python asks for it, and again when it serialises. Here the
raw data of initializers are cut out of a model before protobuf sees it, and put back behind its output.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

#: Field numbers of onnx.proto, fixed for all time by the format.
MODEL_GRAPH = 7
GRAPH_INITIALIZER = 5
TENSOR_RAW_DATA = 9

#: A model has about ten fields, its graph one for each node, tensor and value; more are not looked at one by one.
_MOST_FIELDS, _MOST_GRAPH_FIELDS = 1 << 16, 1 << 19

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class WireError(ValueError):
    """Bytes that are not a well-formed message."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message: its number, wire type, where it begins, and where its value lies."""

    number: int
    kind: int
    begin: int
    start: int
    end: int


def fields(data: memoryview, begin: int, end: int) -> Iterator[Field]:
    """The fields of the message between two offsets, in order; WireError where the bytes end early."""
    position = begin
    while position < end:
        tag, start = _varint(data, position, end)
        kind = tag & 7
        if kind == _VARINT:
            _, stop = _varint(data, start, end)
        elif kind == _BYTES:
            length, start = _varint(data, start, end)
            stop = start + length
        elif kind in (_FIXED64, _FIXED32):
            stop = start + (8 if kind == _FIXED64 else 4)
        else:
            raise WireError(f"wire type {kind} at byte {position}")
        if stop > end or not tag >> 3:
            raise WireError(f"the field at byte {position} runs past byte {end}")
        yield Field(tag >> 3, kind, position, start, stop)
        position = stop


def _varint(data: memoryview, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise WireError(f"the number at byte {position} does not end")


def varint(value: int) -> bytes:
    """The encoding of an unsigned integer."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def header(number: int, length: int) -> bytes:
    """The bytes before the value of a length-delimited field."""
    return varint(number << 3 | _BYTES) + varint(length)


def without_raw_data(data: memoryview, least: int) -> tuple[bytes, dict[int, tuple[int, int]]]:
    """A model without the raw data of its larger initializers, and where these lie, by the initializer's index.

    Raw data under `least` bytes stay where they are. WireError where the bytes are no message, or hold two graphs.
    """
    outside: list[memoryview] = []
    graphs: list[Field] = []
    for field in fields(data, 0, len(data)):
        if field.number == MODEL_GRAPH and field.kind == _BYTES:
            graphs.append(field)
        else:
            outside.append(data[field.begin : field.end])
            if len(outside) > _MOST_FIELDS:
                raise WireError("too many fields in one model")
    if len(graphs) > 1:
        raise WireError("two graphs in one model")
    if not graphs:
        return b"".join(outside), {}
    inside, cut = _graph_without_raw_data(data, graphs[0], least)
    body = b"".join(inside)
    return b"".join([*outside, header(MODEL_GRAPH, len(body)), body]), cut


def _graph_without_raw_data(
    data: memoryview, graph: Field, least: int
) -> tuple[list[bytes | memoryview], dict[int, tuple[int, int]]]:
    pieces: list[bytes | memoryview] = []
    cut: dict[int, tuple[int, int]] = {}
    index = 0
    for field in fields(data, graph.start, graph.end):
        if field.number != GRAPH_INITIALIZER or field.kind != _BYTES:
            pieces.append(data[field.begin : field.end])
            if len(pieces) > _MOST_GRAPH_FIELDS:
                raise WireError("too many fields in one graph")
            continue
        raw = _raw_data(data, field) if field.end - field.start >= least else None
        if raw is None or raw.end - raw.start < least:
            pieces.append(data[field.begin : field.end])
        else:
            cut[index] = (raw.start, raw.end)
            pieces.append(header(GRAPH_INITIALIZER, field.end - field.start - (raw.end - raw.begin)))
            pieces.append(data[field.start : raw.begin])
            pieces.append(data[raw.end : field.end])
        index += 1
    return pieces, cut


def _raw_data(data: memoryview, tensor: Field) -> Field | None:
    matching = [f for f in fields(data, tensor.start, tensor.end) if f.number == TENSOR_RAW_DATA and f.kind == _BYTES]
    if len(matching) > 1:
        raise WireError("two raw_data in one tensor")
    return matching[0] if matching else None
