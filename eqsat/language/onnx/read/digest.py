"""SHA-256 of models as they were given: of their files, of a ModelProto as it is written, or of a graph's content."""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from eqsat.errors import ImportModelError
from eqsat.language.onnx.files.origin import OnnxOrigin
from eqsat.language.terms.constant import Constant
from eqsat.language.terms.graph import Graph

if TYPE_CHECKING:
    from onnx import ModelProto

    from eqsat.language.onnx.files.reader import StoredModel

#: The content that was hashed: one file, a model file with the files of its tensors, a ModelProto, or a graph.
Hashed: TypeAlias = Literal["file", "files", "model", "graph"]
#: Fields of the origin of a graph that say where it was found, and not what it is.
_PLACES = frozenset({"path", "files", "warnings"})


class ModelDigest:
    """The SHA-256 of a model as it was given, computed once, when it is first asked for.

    Of a file it is that of its bytes, as `sha256sum` prints it. Of a model with tensors in other files it is that of
    the lines that `sha256sum` prints for all of them in the model's folder, the model's first, the others sorted. A
    ModelProto is hashed as it is written to a file. A graph is hashed by its content: names, operators, attributes,
    types and constants.
    """

    def __init__(self, model: Path | ModelProto | StoredModel | Graph, files: Sequence[Path] = ()) -> None:
        self._model: Path | ModelProto | StoredModel | Graph | None = model
        self._data = sorted(files[1:])
        self.of: Hashed = "graph" if isinstance(model, Graph) else "model"
        if isinstance(model, Path):
            self.of = "files" if self._data else "file"

    @cached_property
    def sha256(self) -> str:
        """The hash in hexadecimal digits; ImportModelError where a file cannot be read any more."""
        assert self._model is not None
        digest = self._hashed(self._model)
        self._model = None  # the hash outlives a model of gigabytes
        return digest

    def _hashed(self, model: Path | ModelProto | StoredModel | Graph) -> str:
        if isinstance(model, Graph):
            return _of_graph(model)
        if not isinstance(model, Path):
            from eqsat.language.onnx.files.reader import StoredModel

            if isinstance(model, StoredModel):
                return hashlib.sha256(model.data).hexdigest()
            return hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()
        if not self._data:
            return _of_file(model)
        folder = model.parent.resolve()
        lines = [f"{_of_file(model)}  {model.name}\n"]
        lines += [f"{_of_file(file)}  {file.relative_to(folder).as_posix()}\n" for file in self._data]
        return hashlib.sha256(os.fsencode("".join(lines))).hexdigest()


def _of_file(path: Path) -> str:
    """The hash of a file's bytes, read in parts."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as fault:
        raise ImportModelError(
            f"the file cannot be read: {fault.strerror or fault}",
            where=str(path),
            expected="the file that the model was read from",
            remedy="leave it in its place until the result is there",
        ) from fault


def _of_graph(graph: Graph) -> str:
    """The hash of a graph's content."""
    return _of_parts(_graph_parts(graph))


def _of_parts(parts: Iterator[bytes]) -> str:
    """The hash of pieces, each after its length."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def content_hash(value: Any) -> str:
    """The SHA-256 of a value made of mappings, sequences, dataclasses, constants, syntax, text and numbers."""
    return _of_parts(_parts(value))


def _graph_parts(graph: Graph) -> Iterator[bytes]:
    yield from _parts((graph.name, graph.inputs, tuple(graph.outputs.items()), graph.nodes))
    yield from _parts((graph.constants, graph.types))
    if isinstance(graph.origin, OnnxOrigin):
        yield from _parts({f.name: getattr(graph.origin, f.name) for f in fields(OnnxOrigin) if f.name not in _PLACES})


def _parts(value: Any) -> Iterator[bytes]:
    """A value as pieces of bytes, such that different values have different pieces; mappings in the order of keys."""
    if isinstance(value, Constant):
        yield from (b"constant", str(value.type).encode(), value.digest)
    elif isinstance(value, Mapping):
        yield f"mapping {len(value)}".encode()
        for key in sorted(value, key=repr):
            yield from (*_parts(key), *_parts(value[key]))
    elif isinstance(value, tuple | list):
        yield f"sequence {len(value)}".encode()
        for member in value:
            yield from _parts(member)
    elif isinstance(value, frozenset):
        yield from _parts(sorted(value, key=repr))
    elif is_dataclass(value):
        yield type(value).__name__.encode()
        for field in fields(value):
            yield from _parts(getattr(value, field.name))
    elif isinstance(value, ast.AST):
        yield f"syntax {ast.dump(value)}".encode()
    else:
        yield f"{type(value).__name__} {value!r}".encode()
