"""Reading a file, or a ModelProto, into a checked model whose large tensors are arrays beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError, EncodeError
from onnx import ModelProto, defs

from eqsat.errors import ImportModelError
from eqsat.language.onnx.files import wire
from eqsat.language.onnx.files.access import check_model_file, refused
from eqsat.language.onnx.files.foreign import no_model
from eqsat.language.onnx.files.tensors import ExternalData
from eqsat.language.terms import Array
from eqsat.system.files import reason_of
from eqsat.system.mapped import FilePart, mapped

OLDEST_OPSET = 7
#: Raw data from this size on are kept out of protobuf.
_CUT_BYTES = 1 << 12
#: Raw data in files from this size on are read where they lie; smaller files are read whole, and may be written over.
_MAPPED_BYTES = 1 << 24
#: More nodes than any model has that could be optimised; reading so many takes most of a minute.
MOST_NODES = 250_000
#: Versions are stored in 64 bits, and read by onnx into 32.
_LARGEST_VERSION = (1 << 31) - 1


@dataclass
class Source:
    """A parsed model; `raw` holds, by initializer index, the data that were kept out of it, or where they lie.

    `stored` is the ModelProto that it came from, where that is a large one.
    """

    model: ModelProto
    where: str
    path: Path | None = None
    external: ExternalData = field(default_factory=lambda: ExternalData(None))
    raw: dict[int, Array | FilePart] = field(default_factory=dict)
    stored: StoredModel | None = None


@dataclass(frozen=True)
class StoredModel:
    """A large ModelProto beside the bytes that it is written as, which tensors are read from without a copy."""

    proto: ModelProto
    data: bytes
    where: str

    def split(self) -> tuple[ModelProto, dict[int, Array]]:
        """The model without the raw data of its larger tensors, and these by the tensors' indices."""
        skeleton, ranges = _split(memoryview(self.data), self.where)
        buffer = np.frombuffer(self.data, np.uint8)
        return skeleton, {i: buffer[a:b] for i, (a, b) in ranges.items()}

    def parsed(self) -> Source:
        """The parsed model, its larger tensors where they lie in the bytes."""
        skeleton, arrays = self.split()
        return Source(skeleton, self.where, raw={**arrays}, stored=self)


def stored(model: ModelProto) -> StoredModel:
    """A ModelProto with its bytes; ImportModelError for one that is too large for a message."""
    where = str(model.graph.name or "model")
    try:
        return StoredModel(model, model.SerializeToString(deterministic=True), where)
    except (EncodeError, ValueError) as fault:
        raise ImportModelError(
            "a model of over 2 GB in memory",
            where=where,
            expected="tensors in external data",
            remedy="save it with save_as_external_data=True and pass the path",
        ) from fault


def newest_opset() -> int:
    """The newest opset the installed onnx package knows."""
    return int(defs.onnx_opset_version())


def read(source: str | Path | ModelProto) -> Source:
    """The model in a file or an object; ImportModelError where it is none, or one of an opset out of range."""
    if isinstance(source, ModelProto):
        parsed = _from_proto(source)
    elif isinstance(source, str | Path):
        parsed = _from_path(Path(source))
    else:
        raise no_model(source)
    _check(parsed.model, parsed.where)
    return parsed


def _from_proto(model: ModelProto) -> Source:
    whole = stored(model)
    if len(whole.data) >= _MAPPED_BYTES:
        return whole.parsed()
    skeleton, arrays = whole.split()
    return Source(skeleton, whole.where, raw={i: array.copy() for i, array in arrays.items()})


def _from_path(path: Path) -> Source:
    where = str(path)
    try:
        check_model_file(path)
        if path.stat().st_size == 0:
            raise ImportModelError("the file is empty", where=where, expected="an ONNX model")
        file = mapped(path)
        skeleton, ranges = _split(file.bytes.data, where)
        file.release()
    except (OSError, ValueError) as fault:
        raise refused(path, reason_of(fault)) from fault
    parts = {i: FilePart(file, a, b - a) for i, (a, b) in ranges.items()}
    is_large = file.bytes.size >= _MAPPED_BYTES
    raw: dict[int, Array | FilePart] = {i: p if is_large else p.bytes.copy() for i, p in parts.items()}
    return Source(skeleton, where, path, ExternalData(path.parent), raw)


def _split(data: memoryview, where: str) -> tuple[ModelProto, dict[int, tuple[int, int]]]:
    try:
        body, ranges = wire.without_raw_data(data, _CUT_BYTES)
    except wire.WireError:
        # Either no protobuf at all, which its parser says better, or an unusual one that it can merge.
        body, ranges = bytes(data), {}
    try:
        return ModelProto.FromString(body), ranges
    except DecodeError as fault:
        raise ImportModelError(
            "not an ONNX model, or one cut short",
            where=where,
            expected="a serialised onnx.ModelProto",
            remedy="fetch or export the file again",
        ) from fault


def opsets_of(model: ModelProto) -> dict[str, int]:
    """The opset version of each domain; the default domain is ""."""
    return {"" if o.domain == "ai.onnx" else o.domain: int(o.version) for o in model.opset_import}


def check_count(nodes: int, where: str) -> None:
    """ImportModelError for more nodes than can be optimised."""
    if nodes > MOST_NODES:
        raise ImportModelError(
            f"the model has {nodes} nodes, those of its functions counted at every call",
            where=where,
            expected=f"at most {MOST_NODES} nodes",
            remedy="split the model",
        )


def _check(model: ModelProto, where: str) -> None:
    if not model.HasField("graph"):
        raise ImportModelError(
            "the model has no graph", where=where, expected="an ONNX model with a graph", remedy="export it again"
        )
    check_count(len(model.graph.node), where)
    for version in (model.ir_version, *(o.version for o in model.opset_import)):
        if not 0 <= version <= _LARGEST_VERSION:
            raise ImportModelError(
                f"version {version} of the format or an opset",
                where=where,
                expected="a version that there is",
                remedy="export the model again",
            )
    if not all(isinstance(o.domain, str) for o in model.opset_import):
        raise ImportModelError("the name of an opset is not UTF-8", where=where, expected="UTF-8")
    version = opsets_of(model).get("")
    if version is None:
        if any(n.domain in ("", "ai.onnx") for n in model.graph.node):
            raise ImportModelError(
                "the model imports no opset of ONNX's own operators, and uses them",
                where=where,
                expected=f"an opset_import from {OLDEST_OPSET} to {newest_opset()}",
                remedy="export the model again",
            )
        return
    if not OLDEST_OPSET <= version <= newest_opset():
        old = version < OLDEST_OPSET
        raise ImportModelError(
            f"opset {version} is too {'old' if old else 'new'}",
            where=where,
            expected=f"opset {OLDEST_OPSET} to {newest_opset()}",
            remedy="convert it with onnx.version_converter" if old else "install a newer onnx package",
        )
