"""Types, work and samples of recurrent layers."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from eqsat.errors import ShapeError
from eqsat.language.declaration import InferRule, Operands, Sample, SampleRule, present, same_dtype
from eqsat.language.declaration.spec import FlopRule
from eqsat.language.terms import Attrs, Dim, DType, Shape, TensorType, floordiv

DIRECTIONS = ("forward", "reverse", "bidirectional")


#: The activations of one direction where none are given, by the number of gates.
_OWN: Mapping[int, tuple[str, ...]] = {4: ("Sigmoid", "Tanh", "Tanh"), 3: ("Sigmoid", "Tanh"), 1: ("Tanh",)}


#: Activations by ONNX's names, each with whether it has an alpha and a beta.
ACTIVATIONS: Mapping[str, tuple[bool, bool]] = {
    "Relu": (False, False),
    "Tanh": (False, False),
    "Sigmoid": (False, False),
    "Softsign": (False, False),
    "Softplus": (False, False),
    "Affine": (True, True),
    "LeakyRelu": (True, False),
    "ThresholdedRelu": (True, False),
    "ScaledTanh": (True, True),
    "HardSigmoid": (True, True),
    "Elu": (True, False),
}


def layer_type(gates: int, states: int) -> InferRule:
    """The shape rule of a layer with so many gates, whose outputs are all hidden states and the last states."""

    def infer(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
        x, w, r = (present(operands, i) for i in range(3))
        same_dtype([t for i, t in enumerate(operands) if t is not None and i != 4])
        directions = 2 if attrs["direction"] == "bidirectional" else 1
        _check_attributes(attrs, gates, states, directions)
        if x.shape is None or w.shape is None or r.shape is None:
            return (x.with_shape(None),) * (1 + states)
        if (x.rank, w.rank, r.rank) != (3, 3, 3):
            raise ShapeError(f"a recurrent layer of {x}, {w}, {r}", expected="three axes each")
        steps, batch = x.dims[1::-1] if attrs["layout"] else x.dims[:2]
        hidden = r.dims[2]
        _check_operands(operands, attrs, gates, directions, batch)
        last = (batch, directions, hidden) if attrs["layout"] else (directions, batch, hidden)
        every = (batch, steps, directions, hidden) if attrs["layout"] else (steps, directions, batch, hidden)
        return (x.with_shape(every), *(x.with_shape(last) for _ in range(states)))

    return infer


def _check_attributes(attrs: Attrs, gates: int, states: int, directions: int) -> None:
    if attrs["direction"] not in DIRECTIONS:
        raise ShapeError(f"direction {attrs['direction']!r}", expected="one of " + ", ".join(DIRECTIONS))
    each = len(_OWN[gates])
    count = len(attrs["activations"])
    if count not in (0, each * directions) or any(a not in ACTIVATIONS for a in attrs["activations"]):
        raise ShapeError(
            f"activations {list(attrs['activations'])}",
            expected=f"{each} for each direction, of " + ", ".join(ACTIVATIONS),
        )
    if any(len(attrs[k]) not in (0, count) for k in ("alphas", "betas")):
        raise ShapeError("alphas or betas of some activations alone", expected="one for each activation")


def _check_operands(operands: Operands, attrs: Attrs, gates: int, directions: int, batch: Dim) -> None:
    x, r = present(operands, 0), present(operands, 2)
    hidden = r.dims[2]
    state = (batch, directions, hidden) if attrs["layout"] else (directions, batch, hidden)
    wanted: list[Shape] = [
        x.dims,
        (directions, hidden * gates, x.dims[2]),
        (directions, hidden * gates, hidden),
        (directions, hidden * (2 * gates)),
        (batch,),
        state,
        state,
        (directions, hidden * 3),
    ]
    for given, shape in zip(operands, wanted, strict=False):
        if given is None or given.shape is None:
            continue
        pairs = zip(given.dims, shape, strict=False)
        if given.rank != len(shape) or any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
            shown = ", ".join(map(str, shape))
            raise ShapeError(f"{given} among the operands of a recurrent layer", expected=f"shape [{shown}]")
    lens = operands[4] if len(operands) > 4 else None
    if lens is not None and lens.dtype is not DType.INT32:
        raise ShapeError(f"lengths of sequences {lens}", expected="int32", remedy="cast them")


def layer_flops(gates: int) -> FlopRule:
    """The arithmetic of a layer with so many gates."""

    def flops(operands: Operands, results: Sequence[TensorType], attrs: Attrs) -> Dim:
        x, r = present(operands, 0), present(operands, 2)
        return results[0].size * ((x.dims[2] + r.dims[2]) * (2 * gates) + 12 * gates)

    return flops


def layer_sample(gates: int, most: int) -> SampleRule:
    """A sample rule for layers with so many gates and at most so many operands."""

    def sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
        full: dict[str, Any] = {"direction": rng.choice(DIRECTIONS), **attrs}
        directions, layout = 2 if full["direction"] == "bidirectional" else 1, full.get("layout", 0)
        if "activations" not in attrs:
            full["activations"] = rng.choice(((), _OWN[gates] * directions))
        x, w, r = known[0], known[1], known[2]
        rest = [*known[3:], *[None] * 5]
        state = rest[2] or rest[3]
        if any(s is not None and len(s) != 3 for s in (x, w, r, state)):
            return None
        batches = [s[axis] for s, axis in ((x, 1 - layout), (rest[1], 0), (state, 1 - layout)) if s]
        batch = batches[0] if batches else rng.randint(1, 3)
        width = x[2] if x else w[2] if w else rng.randint(1, 3)
        packed = ((w, 1, gates), (rest[0], 1, 2 * gates), (rest[4], 1, 3), (r, 2, 1), (state, 2, 1))
        sizes = [floordiv(s[axis], parts) for s, axis, parts in packed if s]
        hidden = sizes[0] if sizes else rng.randint(1, 2)
        steps = rng.randint(1, 3)
        last = (batch, directions, hidden) if layout else (directions, batch, hidden)
        drawn: list[Shape] = [
            (batch, steps, width) if layout else (steps, batch, width),
            (directions, hidden * gates, width),
            (directions, hidden * gates, hidden),
            (directions, hidden * (2 * gates)),
            (batch,),
            last,
            last,
            (directions, hidden * 3),
        ]
        return [k if k is not None else d for k, d in zip(known, drawn[:most], strict=False)], full

    return sample


_DTYPES = {4: "int32"}
