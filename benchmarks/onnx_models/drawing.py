"""A model of a seed, and the inputs it is run on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from onnx import ModelProto, ValueInfoProto, helper, numpy_helper

from benchmarks.onnx_models import control, elementwise, layers, motifs, movement, others
from benchmarks.onnx_models.elementwise import Step
from benchmarks.onnx_models.growing import BASE, Growing, RefusedError, Value, tensor_type
from benchmarks.onnx_models.numbers import Numbers
from benchmarks.onnx_models.operators import heads, images, quantised, signals, tables

OLDEST_OPSET = 7
#: Steps for operators whose operands have to fit together.
_FITTED = {**images.STEPS, **signals.STEPS, **quantised.STEPS, **heads.STEPS, **tables.STEPS}
GROUPS = (elementwise.STEPS, movement.STEPS, layers.STEPS, control.STEPS, others.STEPS, motifs.STEPS, _FITTED)
#: How often steps are drawn from each group.
_SHARES = (0.18, 0.18, 0.16, 0.05, 0.1, 0.23, 0.1)
#: Steps that are tried for each that succeeds, before a model is taken as it is.
_PATIENCE = 4
#: Sizes of the named dims that models are run at.
SIZES: Sequence[Mapping[str, int]] = (BASE, {"n": 1, "m": 1}, {"n": 0, "m": 2}, {"n": 5, "m": 0}, {"n": 33, "m": 17})


@dataclass(frozen=True)
class Drawn:
    """A model, its inputs with their dims, and which edges its numbers have."""

    model: ModelProto
    inputs: Sequence[Value]
    edges: str
    seed: int

    @property
    def names(self) -> set[str]:
        return {d for v in self.inputs for d in v.dims if isinstance(d, str)}

    def feeds(self) -> Iterator[tuple[Mapping[str, int], dict[str, Any]]]:
        """Inputs at every size; at the base sizes alone where no dim has a name."""
        rng = np.random.default_rng([self.seed, 1])
        edges = ("none", self.edges) if self.edges != "none" else ("none",)
        for sizes in SIZES if self.names else (*SIZES[:1], *SIZES[:1]):
            kind = edges[int(rng.integers(len(edges)))] if sizes is not SIZES[0] else self.edges
            numbers = Numbers(rng, kind)
            yield sizes, {v.name: numbers.array(v.dtype, _sized(v, sizes)) for v in self.inputs}


def _sized(value: Value, sizes: Mapping[str, int]) -> list[int]:
    return [d if isinstance(d, int) else sizes[str(d)] for d in value.dims]


def random_model(seed: int) -> Drawn:
    """The model of a seed: four nodes or so, sometimes many more."""
    rng = np.random.default_rng([seed, 0])
    edges = ("none", "finite", "all")[int(rng.choice(3, p=(0.6, 0.15, 0.25)))]
    opset = int(rng.integers(OLDEST_OPSET, newest_opset() + 1))
    ir_version = int(helper.find_min_ir_version_for([helper.make_opsetid("", opset)]))
    g = Growing(rng, Numbers(rng, edges), opset, max(ir_version, int(rng.integers(3, 11))))
    for _ in range(g.integer(0, 2)):
        g.input(g.dtype("f" if g.flip(0.8) else "fiub"), g.dims(g.integer(0, 4)))
    wanted = 1 + int(rng.geometric(0.25))
    for _ in range(_PATIENCE * wanted):
        if len(g.nodes) >= wanted:
            break
        with contextlib.suppress(RefusedError, ValueError, IndexError):
            _step(g)(g)
    model, inputs = _finished(g)
    return Drawn(model, inputs, edges, seed)


def _step(g: Growing) -> Step:
    group = GROUPS[int(g.rng.choice(len(GROUPS), p=_SHARES))]
    weights = np.array(list(group.values()))
    step: Step = list(group)[int(g.rng.choice(len(weights), p=weights / weights.sum()))]
    return step


@cache
def newest_opset() -> int:
    """The newest opset that the ONNX Runtime here runs."""
    from onnx import defs

    from benchmarks.onnx_models.sessions import Session

    for opset in range(defs.onnx_opset_version(), OLDEST_OPSET, -1):
        x, y = (helper.make_tensor_value_info(n, 1, [1]) for n in "xy")
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
        try:
            Session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8))
        except Exception:  # noqa: BLE001 - it is refused, whatever with
            continue
        return opset
    return OLDEST_OPSET


def _finished(g: Growing) -> tuple[ModelProto, list[Value]]:
    """The model with outputs, and without what nothing reads."""
    read = {name for node in g.nodes for name in _reads(node)}
    made = [v for v in g.values if not any(v is x for x in g.inputs)]
    outputs = [v for v in made if v.name not in read or g.flip(0.12)]
    if g.flip(0.05):
        outputs += g.inputs[:1]
    constants = [*g.initializers]
    if g.flip(0.03) and constants:
        name = g.among(constants)
        outputs.append(Value(name, g.initializers[name], tuple(g.initializers[name].shape), constant=True))
    g.rng.shuffle(outputs)  # type: ignore[arg-type]
    if g.flip(0.03) and outputs:
        outputs.append(g.among(outputs))
    outputs = outputs[:6] or g.inputs[:1]
    read |= {v.name for v in outputs}
    inputs = [v for v in g.inputs if v.name in read or g.flip(0.1)]
    tensors = {n: a for n, a in g.initializers.items() if n in read or n[:-1] in read}
    graph = helper.make_graph(
        [*(node for name, node in g.constants.items() if name in read), *g.nodes],
        "random",
        [_info(g, v) for v in inputs],
        [_stated(g, v) for v in outputs],
        [numpy_helper.from_array(a, n) for n, a in tensors.items()],
        value_info=[_info(g, v) for v in made if g.flip(0.1) and v not in outputs],
        sparse_initializer=[s for s in g.sparse if s.values.name in read],
    )
    listed = g.ir_version < 4 or g.flip(0.04)
    if listed:
        graph.input.extend(helper.make_tensor_value_info(n, tensor_type(a), a.shape) for n, a in tensors.items())
    return g.wrapped(graph), inputs


def _reads(node: Any) -> Iterator[str]:
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _reads(inner)


def _info(g: Growing, value: Value) -> ValueInfoProto:
    return helper.make_tensor_value_info(value.name, tensor_type(value.array), value.dims)


def _stated(g: Growing, value: Value) -> ValueInfoProto:
    """An output with its dims, or without."""
    if g.flip(0.4) or (value.rank == 0 and g.flip()):
        return helper.make_tensor_value_info(value.name, tensor_type(value.array), None)
    return _info(g, value)
