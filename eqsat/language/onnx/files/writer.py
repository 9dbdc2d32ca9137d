"""Writing models to files: atomically, and with tensors that protobuf never copies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from onnx import ModelProto, TensorProto

from eqsat.errors import ExportModelError
from eqsat.language.onnx.files import wire
from eqsat.language.onnx.files.placement import data_place, replace, replace_both
from eqsat.language.onnx.files.tensors import header_of, raw_bytes, refuse_overwritten, stored_bytes
from eqsat.language.terms import Constant, DType

#: The largest message protobuf reads.
MESSAGE_BYTES = (1 << 31) - 1
#: Tensors below this size stay inside the model when the others move out.
_INLINE_BYTES = 1 << 10
#: Tensors begin at multiples of this in a data file, so that they can be mapped.
_ALIGNMENT = 1 << 12


def whole(model: ModelProto, tensors: Mapping[str, Constant], *, where: str) -> bytes:
    """The serialised model with its tensors inside."""
    if _size(model, tensors) > MESSAGE_BYTES:
        raise ExportModelError(
            "the model takes over 2 GB", where=where, expected="at most 2 GB", remedy="save it to a file"
        )
    return b"".join(_chunks(model, tensors))


def save(
    model: ModelProto, tensors: Mapping[str, Constant], path: Path, *, sources: Sequence[Path], external: bool
) -> None:
    """Write a model to a file; see `eqsat.language.onnx.write.exporter.save`."""
    where = str(path)
    refuse_overwritten(tensors.values(), ExportModelError)
    outside = external or _size(model, tensors) > MESSAGE_BYTES
    for target in (path, data_place(path)) if outside else (path,):
        refuse_source(target, sources)
    if not outside:
        replace(path, lambda file: _write_all(file, _chunks(model, tensors)), where)
        return
    inside = {k: c for k, c in tensors.items() if stored_bytes(c) < _INLINE_BYTES}
    moved = {k: c for k, c in tensors.items() if k not in inside}

    def write_model(file: BinaryIO, location: str) -> None:
        _write_all(file, _chunks(_with_external(model, moved, location), inside))

    replace_both(path, write_model, lambda file: _write_data(file, moved), where)


def refuse_source(target: Path, sources: Sequence[Path]) -> None:
    """ExportModelError for a target that is one of the sources, by whatever name."""
    for source in sources:
        with contextlib.suppress(OSError):
            if target.exists() and target.samefile(source):
                raise ExportModelError(
                    "the target is the model that was read, or a data file of it",
                    where=str(target),
                    expected="another path",
                    remedy="write to a new file and move it afterwards",
                )


def _chunks(model: ModelProto, tensors: Mapping[str, Constant]) -> Iterator[Any]:
    """The serialised model in pieces; tensors come as views of their arrays."""
    graph = model.graph.SerializeToString(deterministic=True)
    rest = ModelProto()
    rest.CopyFrom(model)
    rest.ClearField("graph")
    heads = {name: header_of(name, c).SerializeToString(deterministic=True) for name, c in tensors.items()}
    total = len(graph) + sum(_tensor_bytes(heads[name], c)[1] for name, c in tensors.items())
    yield rest.SerializeToString(deterministic=True)
    yield wire.header(wire.MODEL_GRAPH, total)
    yield graph
    for name, constant in tensors.items():
        inner, _ = _tensor_bytes(heads[name], constant)
        yield wire.header(wire.GRAPH_INITIALIZER, inner)
        yield heads[name]
        if constant.type.dtype is not DType.STRING:
            yield wire.header(wire.TENSOR_RAW_DATA, stored_bytes(constant))
            yield raw_bytes(constant)


def _tensor_bytes(head: bytes, constant: Constant) -> tuple[int, int]:
    """The size of a tensor's message, and of the field that holds it."""
    raw = stored_bytes(constant)
    inner = len(head)
    if constant.type.dtype is not DType.STRING:
        inner += len(wire.header(wire.TENSOR_RAW_DATA, raw)) + raw
    return inner, len(wire.header(wire.GRAPH_INITIALIZER, inner)) + inner


def _size(model: ModelProto, tensors: Mapping[str, Constant]) -> int:
    return int(model.ByteSize()) + sum(stored_bytes(c) + len(k) + 64 for k, c in tensors.items())


def _write_all(file: BinaryIO, chunks: Iterator[Any]) -> None:
    for chunk in chunks:
        file.write(chunk)


def _write_data(file: BinaryIO, tensors: Mapping[str, Constant]) -> None:
    for (_, constant), offset in zip(tensors.items(), _offsets(tensors), strict=True):
        file.seek(offset)
        file.write(raw_bytes(constant))


def _offsets(tensors: Mapping[str, Constant]) -> Iterator[int]:
    position = 0
    for constant in tensors.values():
        yield position
        position += -(-stored_bytes(constant) // _ALIGNMENT) * _ALIGNMENT


def _with_external(model: ModelProto, tensors: Mapping[str, Constant], location: str) -> ModelProto:
    """A copy of the model that says where its tensors lie."""
    result = ModelProto()
    result.CopyFrom(model)
    for (name, constant), offset in zip(tensors.items(), _offsets(tensors), strict=True):
        proto = header_of(name, constant)
        proto.data_location = TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", offset), ("length", stored_bytes(constant))):
            proto.external_data.add(key=key, value=str(value))
        result.graph.initializer.append(proto)
    return result
