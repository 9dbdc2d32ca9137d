"""Models written back as they were given: the same nodes, names and tensors."""

from __future__ import annotations

import shutil
from pathlib import Path

from onnx import ModelProto, TensorProto

from eqsat.language.onnx.files import writer
from eqsat.language.onnx.files.placement import replace
from eqsat.language.onnx.files.protos import tensors
from eqsat.language.onnx.files.reader import read
from eqsat.language.onnx.files.tensors import constant_of, load_external
from eqsat.language.onnx.write.properties import Property, set_property
from eqsat.system.mapped import FilePart


def model(given: Path | ModelProto, stated: Property | None = None) -> ModelProto:
    """A copy of a model with all its tensors inside, and a property; ImportModelError where its file is gone."""
    copy = _model(given)
    if stated is not None:
        set_property(copy, stated)
    return copy


def _model(given: Path | ModelProto) -> ModelProto:
    if isinstance(given, ModelProto):
        copy = ModelProto()
        copy.CopyFrom(given)
        return copy
    source = read(given)
    for index, data in source.raw.items():
        raw = data.bytes if isinstance(data, FilePart) else data
        source.model.graph.initializer[index].raw_data = raw.tobytes()
    load_external(tensors(source.model.graph), source.where, source.external)
    return source.model


def save(given: Path | ModelProto, path: Path, stated: Property | None = None) -> None:
    """Write a model to another file, atomically.

    The file of a model that keeps its tensors inside, and gets no property, is copied byte by byte. Tensors in files
    beside the model go to PATH.data. ExportModelError where the target cannot be written, or is one of the files the
    model is read from.
    """
    if isinstance(given, ModelProto):
        data = (given if stated is None else model(given, stated)).SerializeToString(deterministic=True)
        replace(path, lambda file: file.write(data), str(path))
        return
    source = read(given)
    external = any(_is_external(t) for t in tensors(source.model.graph))
    if stated is not None:
        set_property(source.model, stated)
    elif not external:
        writer.refuse_source(path, [given])
        with given.open("rb") as original:
            replace(path, lambda file: shutil.copyfileobj(original, file, 1 << 20), str(path))
        return
    graph = source.model.graph
    constants = {
        t.name: constant_of(t, f"{given}: initializer {t.name!r}", source.external, source.raw.get(i))
        for i, t in enumerate(graph.initializer)
    }
    del graph.initializer[:]
    load_external(tensors(source.model.graph), source.where, source.external)
    files = source.external.files.values()
    writer.save(source.model, constants, path, sources=[given, *files], external=external)


def _is_external(tensor: TensorProto) -> bool:
    return bool(tensor.data_location == TensorProto.EXTERNAL)
