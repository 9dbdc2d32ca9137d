"""ONNX tensors to constants and back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from onnx import SparseTensorProto, TensorProto, numpy_helper

from eqsat.errors import EqsatError, ImportModelError, first_line
from eqsat.language.terms import Array, Constant, DType, TensorType
from eqsat.system.files import reason_of
from eqsat.system.mapped import FilePart, MappedFile, mapped

#: Element types that ONNX packs several to a byte.
_PACKED = {DType.INT4: 4, DType.UINT4: 4, DType.FLOAT4E2M1: 4, DType.INT2: 2, DType.UINT2: 2}
#: External data from this size on are mapped, smaller ones read.
_MAPPED_BYTES = 1 << 16
#: A sparse tensor is not spread out beyond this size.
_DENSE_BYTES = 1 << 31
#: NumPy has no arrays of more dims.
_MOST_DIMS = 64


@cache
def _dtypes() -> dict[int, DType]:
    by_name = {d.value.upper(): d for d in DType}
    by_name |= {"FLOAT": DType.FLOAT32, "DOUBLE": DType.FLOAT64}
    return {number: by_name[name] for name, number in TensorProto.DataType.items() if name in by_name}


@cache
def _numbers() -> dict[DType, int]:
    return {dtype: number for number, dtype in _dtypes().items()}


def dtype_of(number: int) -> DType | None:
    """The element type with this number in onnx.proto, or None where there is none such."""
    return _dtypes().get(number)


def number_of(dtype: DType) -> int:
    """The number of an element type in onnx.proto."""
    return _numbers()[dtype]


@dataclass
class ExternalData:
    """The files beside a model that hold its tensors; `folder` is None for a model that came from no file."""

    folder: Path | None
    files: dict[str, Path] = field(default_factory=dict)
    _mapped: dict[Path, MappedFile] = field(default_factory=dict)

    def constant(self, tensor: TensorProto, type: TensorType, where: str) -> Constant:
        """A constant read from its file when first needed; ImportModelError where the file cannot hold it."""
        entries = {e.key: e.value for e in tensor.external_data}
        if not all(isinstance(text, str) for entry in entries.items() for text in entry):
            raise ImportModelError(
                "a name of external data is not UTF-8", where=where, expected="UTF-8", remedy="export the model again"
            )
        path = self._file(entries.get("location", ""), where)
        offset, length = _number(entries, "offset", 0, where), _number(entries, "length", -1, where)
        needed = _stored_bytes(type)
        size = path.stat().st_size
        if length not in (-1, needed):
            raise ImportModelError(
                f"{length} bytes of external data for {type}",
                where=where,
                expected=f"{needed} bytes",
                remedy="export the model again",
            )
        if offset + needed > size:
            raise ImportModelError(
                f"external data from byte {offset} to {offset + needed} of {path.name}, which has {size}",
                where=where,
                expected="data inside the file",
                remedy="fetch the file again: it may be truncated",
            )
        if needed < _MAPPED_BYTES:
            return Constant(type, lambda: _read(path, offset, needed, type))
        with _errors_told(path):
            if path not in self._mapped:
                self._mapped[path] = mapped(path)
        return mapped_constant(type, FilePart(self._mapped[path], offset, needed))

    def _file(self, location: str, where: str) -> Path:
        if self.folder is None:
            raise ImportModelError(
                f"external data at {location!r} of a model that came from no file",
                where=where,
                expected="a path to the model, so that its data are found beside it",
                remedy="pass the path, or call onnx.load_external_data_for_model first",
            )
        if location not in self.files:
            self.files[location] = _inside(self.folder, location, where)
        return self.files[location]


def _inside(folder: Path, location: str, where: str) -> Path:
    home = folder.resolve()
    try:
        resolved = (folder / location).resolve() if "\0" not in location else folder
        is_file = resolved.is_file()
    except (OSError, RuntimeError) as fault:  # a name beyond what the system allows, links in a circle
        raise ImportModelError(
            f"external data at {location!r} cannot be looked up: {first_line(fault)}",
            where=where,
            expected=f"a file in {str(folder)!r}",
            remedy="move the data beside the model and save it again",
        ) from fault
    if not location or "\0" in location or Path(location).is_absolute() or not resolved.is_relative_to(home):
        raise ImportModelError(
            f"external data at {location!r}, outside the model's folder",
            where=where,
            expected=f"a file in {str(folder)!r}",
            remedy="move the data beside the model and save it again",
        )
    if not is_file:
        raise ImportModelError(
            f"external data file {location!r} is missing",
            where=where,
            expected=f"a file in {str(folder)!r}",
            remedy="put it beside the model",
        )
    return resolved


def _number(entries: dict[str, str], key: str, default: int, where: str) -> int:
    text = entries.get(key)
    if text is None:
        return default
    if not text.isdecimal() or len(text) > 19:
        raise ImportModelError(
            f"{key} {text!r} of external data", where=where, expected="a number of bytes", remedy="export it again"
        )
    return int(text)


def _stored_bytes(type: TensorType) -> int:
    count = math.prod(type.static)
    packed = _PACKED.get(type.dtype)
    return -(-count * packed // 8) if packed else count * type.dtype.itemsize


def _read(path: Path, offset: int, length: int, type: TensorType) -> Array:
    with _errors_told(path), path.open("rb") as file:
        file.seek(offset)
        return _elements(file.read(length), type)


@contextmanager
def _errors_told(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as fault:
        raise ImportModelError(
            f"external data cannot be read: {reason_of(fault)}", where=str(path), expected="a readable file"
        ) from fault


def mapped_constant(type: TensorType, place: FilePart) -> Constant:
    """A constant whose elements are read where they lie in a file; only those of less than a byte are unpacked."""
    return Constant(type, lambda: _elements(place.bytes, type), place)


def _elements(raw: bytes | Array, type: TensorType) -> Array:
    if type.dtype in _PACKED:
        proto = TensorProto(dims=type.static, data_type=number_of(type.dtype), raw_data=bytes(raw))
        unpacked: Array = numpy_helper.to_array(proto)
        return unpacked
    return np.frombuffer(raw, type.dtype.numpy).reshape(type.static)


def refuse_overwritten(constants: Iterable[Constant], error: type[EqsatError]) -> None:
    """An error for constants in a mapped file that was written over since: their elements are others now."""
    files = {constant.place.file for constant in constants if constant.place is not None}
    for file in sorted((f for f in files if f.is_overwritten), key=lambda f: f.path):
        raise error(
            "the file was written over since the model was read",
            where=str(file.path),
            expected="the bytes that were read, which are not copied",
            remedy="optimise the model as it is now; to keep both, write the new one to another file and move it",
        )


def load_external(found: Iterable[TensorProto], where: str, external: ExternalData) -> None:
    """Put the data of tensors that keep them in a file into the tensors, in place."""
    for tensor in found:
        if tensor.data_location == TensorProto.EXTERNAL:
            constant = external.constant(tensor, tensor_type(tensor, where), f"{where}: tensor {tensor.name!r}")
            tensor.raw_data = bytes(raw_bytes(constant))
            tensor.data_location = TensorProto.DEFAULT
            del tensor.external_data[:]


def tensor_type(tensor: TensorProto, where: str) -> TensorType:
    """The type a tensor declares; ImportModelError where it is none."""
    dtype = dtype_of(tensor.data_type)
    if dtype is None:
        raise ImportModelError(
            f"element type {tensor.data_type}",
            where=where,
            expected="an element type of ONNX",
            remedy="export the model again",
        )
    if any(d < 0 for d in tensor.dims):
        raise ImportModelError(
            f"shape {list(tensor.dims)} has a negative dim", where=where, expected="dims of 0 or more"
        )
    if len(tensor.dims) > _MOST_DIMS:
        raise ImportModelError(f"{len(tensor.dims)} dims", where=where, expected=f"at most {_MOST_DIMS} dims")
    # A dim of 0 does not make the others smaller: NumPy refuses such an array, and so does this.
    if math.prod(d for d in tensor.dims if d) * dtype.itemsize >= 1 << 63 or math.prod(tensor.dims) >= 1 << 62:
        raise ImportModelError(f"shape {list(tensor.dims)}", where=where, expected="fewer than 2**62 elements")
    return TensorType(dtype, tuple(tensor.dims))


def constant_of(
    tensor: TensorProto, where: str, external: ExternalData, raw: Array | FilePart | None = None
) -> Constant:
    """The constant a tensor holds; `raw` stands for raw data that were cut out of it, in memory or in a file."""
    type = tensor_type(tensor, where)
    if tensor.data_location == TensorProto.EXTERNAL:
        return external.constant(tensor, type, where)
    if raw is None and not tensor.HasField("raw_data"):
        return _from_fields(tensor, type, where)
    place = raw if isinstance(raw, FilePart) else None
    data = tensor.raw_data if raw is None else raw.bytes if isinstance(raw, FilePart) else raw
    if type.dtype is DType.STRING or len(data) != _stored_bytes(type):
        raise ImportModelError(
            f"{len(data)} bytes of data for {type}",
            where=where,
            expected="string_data" if type.dtype is DType.STRING else f"{_stored_bytes(type)} bytes",
            remedy="export the model again",
        )
    if place is not None:
        return mapped_constant(type, place)
    array = _elements(data, type)
    return Constant(type, lambda: array)


_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")


def _from_fields(tensor: TensorProto, type: TensorType, where: str) -> Constant:
    count = math.prod(type.static)
    stored = max(len(getattr(tensor, name)) for name in _FIELDS)
    complex_parts = 2 if type.dtype in (DType.COMPLEX64, DType.COMPLEX128) else 1
    packed = 8 // _PACKED.get(type.dtype, 8)
    if stored != -(-count * complex_parts // packed):
        raise ImportModelError(
            f"{stored} elements of data for {type}",
            where=where,
            expected=f"{count} elements",
            remedy="export the model again",
        )
    if type.dtype is DType.STRING:
        # Strings need not be UTF-8; others come back as they were.
        texts = [s.decode("utf-8", "surrogateescape") for s in tensor.string_data]
        return Constant.of(np.array(texts, object).reshape(type.static), type.dtype)
    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, OverflowError) as fault:
        raise ImportModelError(f"data do not fit {type}: {fault}", where=where, expected=str(type)) from fault
    return Constant.of(array, type.dtype)


def dense_of(sparse: SparseTensorProto, where: str, external: ExternalData) -> Constant:
    """The constant a sparse tensor stands for, spread out when first needed."""
    dims = tuple(sparse.dims)
    values = constant_of(sparse.values, where, external)
    indices = constant_of(sparse.indices, where, external)
    type = TensorType(values.type.dtype, dims)
    size = math.prod(dims)
    if any(d < 0 for d in dims) or not dims:
        raise ImportModelError(f"sparse tensor of shape {list(dims)}", where=where, expected="dims of 0 or more")
    if size * type.dtype.itemsize > _DENSE_BYTES:
        raise ImportModelError(
            f"sparse tensor {type} would take {size * type.dtype.itemsize} bytes",
            where=where,
            expected=f"at most {_DENSE_BYTES} bytes when spread out",
        )
    count = values.type.static[0] if values.type.rank == 1 else -1
    if indices.type.dtype is not DType.INT64 or indices.type.static not in ((count,), (count, len(dims))):
        raise ImportModelError(
            f"sparse tensor with values {values.type} at {indices.type}",
            where=where,
            expected="int64 indices [n] or [n, rank] for n values",
        )
    flat = _flat_indices(indices.array, dims)
    if flat.size and (int(flat.min()) < 0 or int(flat.max()) >= size):
        raise ImportModelError("an index of the sparse tensor lies outside it", where=where, expected=f"inside {type}")
    return Constant(type, lambda: _spread(flat, values.array, type))


def _flat_indices(indices: Array, dims: tuple[int, ...]) -> Array:
    if indices.ndim == 1:
        return indices
    outside = (indices < 0).any(axis=1) | (indices >= np.array(dims, np.int64)).any(axis=1)
    strides = np.array([math.prod(dims[i + 1 :]) for i in range(len(dims))], np.int64)
    return np.where(outside, -1, indices @ strides)


def _spread(flat: Array, values: Array, type: TensorType) -> Array:
    dense = np.zeros(math.prod(type.static), type.dtype.numpy)
    dense[flat] = values
    return dense.reshape(type.static)


def raw_bytes(constant: Constant) -> Any:
    """The elements as ONNX stores them: a buffer, without a copy where the array is contiguous."""
    array = constant.array
    if constant.type.dtype in _PACKED:
        return numpy_helper.from_array(array).raw_data
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def header_of(name: str, constant: Constant) -> TensorProto:
    """A TensorProto with name, type and dims, and no data, except strings, which have no raw form."""
    proto = TensorProto(name=name, dims=constant.type.static, data_type=number_of(constant.type.dtype))
    if constant.type.dtype is DType.STRING:
        proto.string_data.extend(
            s if isinstance(s, bytes) else str(s).encode("utf-8", "surrogateescape")
            for s in np.asarray(constant.array, object).ravel()
        )
    return proto


def tensor_of(name: str, constant: Constant) -> TensorProto:
    """A whole TensorProto."""
    proto = header_of(name, constant)
    if constant.type.dtype is not DType.STRING:
        proto.raw_data = bytes(raw_bytes(constant))
    return proto


def stored_bytes(constant: Constant) -> int:
    """Bytes of raw data the constant takes in a file."""
    return 0 if constant.type.dtype is DType.STRING else _stored_bytes(constant.type)
