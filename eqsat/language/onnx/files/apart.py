"""Models whose large tensors ONNX Runtime reads where they lie: in files, or in memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from onnx import ModelProto, TensorProto

from eqsat.errors import ImportModelError
from eqsat.language.onnx.files.protos import tensors_within
from eqsat.language.onnx.files.reader import Source, StoredModel, read, stored
from eqsat.language.onnx.files.tensors import constant_of, header_of, load_external, refuse_overwritten, tensor_of
from eqsat.language.terms import Constant, DType
from eqsat.system.deadline import check
from eqsat.system.mapped import MappedFile

#: A model of fewer bytes is copied as a whole, and so are tensors of fewer bytes where it is not.
COPIED_BYTES, SHARED_BYTES = 1 << 24, 1 << 16


@dataclass(frozen=True)
class ModelApart:
    """A model without its large tensors: those in files are named by paths from `folder`, others are `held`.

    `tables` are those in files of which rows are read where they lie, and that a session has no use of its own for.
    """

    model: ModelProto
    folder: Path | None = None
    held: Mapping[str, Constant] = field(default_factory=dict)
    tables: Mapping[str, Constant] = field(default_factory=dict)


def with_tensors_apart(model: ModelProto, tensors: Mapping[str, Constant]) -> ModelApart:
    """A model that gets tensors as initializers; ImportModelError for those in a file that was written over since."""
    named = {}
    for name, constant in tensors.items():
        check()
        is_small = constant.nbytes < SHARED_BYTES or constant.type.dtype is DType.STRING
        model.graph.initializer.append((tensor_of if is_small else header_of)(name, constant))
        if not is_small:
            named[name] = model.graph.initializer[-1], constant
    return _referring(model, named)


def given_apart(given: Path | ModelProto | StoredModel, weights: int = 0) -> Path | ModelProto | ModelApart:
    """A model as it was given, its large tensors apart where it has many bytes of `weights`, or of its own."""
    if isinstance(given, Path):
        # Of one that is gone, ONNX Runtime says so.
        is_large = given.exists() and max(given.stat().st_size, weights) >= COPIED_BYTES
        return _source_apart(read(given)) if is_large else given
    if isinstance(given, ModelProto):
        if given.ByteSize() < COPIED_BYTES:
            return given
        given = stored(given)
    return _source_apart(given.parsed())


def _source_apart(source: Source) -> ModelApart:
    """A model with the tensors apart that were kept out of it as it was parsed, and those in other files."""
    named = {}
    for index, tensor in enumerate(source.model.graph.initializer):
        raw = source.raw.get(index)
        if raw is not None or tensor.data_location == TensorProto.EXTERNAL:
            named[tensor.name] = tensor, constant_of(tensor, source.where, source.external, raw)
    for node in source.model.graph.node:
        load_external(tensors_within(node), source.where, source.external)
    return _referring(source.model, named)


def _referring(model: ModelProto, named: Mapping[str, tuple[TensorProto, Constant]]) -> ModelApart:
    """A model in which tensors, by name, say where the elements of constants are: in files, or held in memory."""
    refuse_overwritten((constant for _, constant in named.values()), ImportModelError)
    files = {c.place.file for _, c in named.values() if c.place is not None and c.place.file.is_in_place}
    folder = _folder_of(files)
    held = {}
    for name, (tensor, constant) in named.items():
        part = constant.place
        if part is None or folder is None or part.file not in files:
            held[name] = constant
            entries: dict[str, object] = {"location": "held in memory"}
        else:
            location = part.file.path.relative_to(folder).as_posix()
            entries = {"location": location, "offset": part.offset, "length": part.length}
        del tensor.external_data[:]
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=str(value))
    rows = _read_by_rows(model)
    plain = {name: c for name, (_, c) in named.items() if c.type.dtype.numpy.isbuiltin == 1}
    tables = {name: c for name, c in plain.items() if name in rows and name not in held}
    return ModelApart(model, folder, held, tables)


def _read_by_rows(model: ModelProto) -> set[str]:
    """The values of which nothing but rows are read; none where a body may have other values of these names."""
    if any(attribute.HasField("g") or attribute.graphs for node in model.graph.node for attribute in node.attribute):
        return set()
    rows = {node.input[0] for node in model.graph.node if node.op_type == "Gather" and node.domain in ("", "ai.onnx")}
    others = {v for n in model.graph.node for v in n.input[1 if n.op_type == "Gather" else 0 :]}
    return rows - others - {output.name for output in model.graph.output}


def _folder_of(files: Iterable[MappedFile]) -> Path | None:
    """The innermost folder around files; None where there are none, and for those that ONNX Runtime cannot name."""
    places = [file.path.parent for file in files]
    with suppress(ValueError):  # on two drives, or beyond UTF-8
        for file in files:
            str(file.path).encode()
        return Path(os.path.commonpath(places)) if places else None
    return None
