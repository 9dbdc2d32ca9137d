"""The parts of an ONNX model beside its graph, kept so that it can be written back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from eqsat.language.onnx.microsoft.records import FusedRecord
from eqsat.language.terms import Constant, Graph


@dataclass(frozen=True)
class SettledControl:
    """A node of If, Loop or Scan that gave way to its runs as plain nodes, and how many runs of bodies that spares."""

    text: str
    runs: int


@dataclass(frozen=True)
class OnnxOrigin:
    """Where a graph came from: the model around it, its declared values, and its files.

    `model` is the serialised ModelProto without nodes, tensors and value types: opsets, metadata, functions, training
    information, doc strings. `inputs`, `outputs` and `values` hold serialised ValueInfoProtos by name. `defaults` are
    the initializers that a caller may override, being inputs too; `sparse` the sparse tensors that constants were made
    of. `listed` are the outputs in their order, one more than once where the model lists it so. `external` is true
    where the model kept its tensors in other files, `files` every file it was read from, and `warnings` what a user
    should hear of. `nodes` counts the nodes the model has, those that only hold a constant left out. `records` are the
    operators that were read as several of ours; `settled` says which of If, Loop and Scan gave way to what runs in
    their place. `contrib` says that the graph is to run on ONNX Runtime, and may be written in operators of its own.
    """

    model: bytes
    opset: int
    ir_version: int
    inputs: Mapping[str, bytes] = field(default_factory=dict)
    outputs: Mapping[str, bytes] = field(default_factory=dict)
    values: Mapping[str, bytes] = field(default_factory=dict)
    defaults: Mapping[str, Constant] = field(default_factory=dict)
    sparse: Mapping[str, tuple[Constant, bytes]] = field(default_factory=dict)
    listed: tuple[str, ...] = ()
    path: Path | None = None
    external: bool = False
    files: tuple[Path, ...] = ()
    warnings: tuple[str, ...] = ()
    nodes: int = 0
    records: tuple[FusedRecord, ...] = ()
    settled: tuple[SettledControl, ...] = ()
    contrib: bool = False


def defaults_of(graph: Graph) -> Mapping[str, Constant]:
    """The values that a model brings for inputs that a caller may leave out."""
    return graph.origin.defaults if isinstance(graph.origin, OnnxOrigin) else {}
