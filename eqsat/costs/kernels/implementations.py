"""The ways an operator can be run: the states its operands may come in, and those of its results."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat.costs.kernels.precision import PrecisionPolicy, is_product, lowers
from eqsat.language.declaration.spec import OpSpec
from eqsat.language.ops import OPS, spec
from eqsat.language.terms import LAYOUTS, PLAIN, Implementation, State, TensorType, stored_shape
from eqsat.runtime.onnxruntime.support import may_spread_over_nothing

Types = Sequence[TensorType | None]

#: Layouts of images, in which operators on images have kernels; to turn the plane around would be another operator.
_IMAGE_LAYOUTS = frozenset({"nhwc", "blocked"})
#: Beginning of the index form of an operator on images: batch, channels, then the plane.
_IMAGES = ("n c h", "n g*c h")


@dataclass(frozen=True)
class Choices:
    """The choices besides the graph: layouts, and precisions that a policy allows.

    `layouts` always has "row" in it. `Choices()` leaves nothing to choose.
    """

    layouts: tuple[str, ...] = ("row",)
    policy: PrecisionPolicy = field(default_factory=PrecisionPolicy)

    def states(self, type: TensorType | None) -> tuple[State, ...]:
        """The states a value of this type may be held in, the plain one first.

        >>> [str(s) for s in Choices(("row", "column")).states(TensorType.of("float32", (2, 3)))]
        ['row', 'column']
        """
        if type is None:
            return (PLAIN,)
        fitting = [name for name in self.layouts if name == "row" or LAYOUTS[name].fits(type)]
        precisions = ("", *self.policy.floats) if lowers(type) else ("",)
        return tuple(State(layout, precision) for precision in precisions for layout in fitting)


def implementations(
    op: str, attrs: Mapping[str, Any], operands: Types, results: Types, const: Sequence[bool], choices: Choices
) -> tuple[Implementation, ...]:
    """The ways to run one operator, the plain one first.

    An operator with several results, and one whose declaration says nothing about how it reads its operands, has the
    plain one only.
    """
    plain = Implementation((PLAIN,) * len(operands), PLAIN)
    declared = OPS.get(op)
    if declared is None or len(results) != 1 or results[0] is None or results[0].shape is None:
        return (plain,)
    ways = {plain: None}
    variants = [((("row",) * len(operands)), "row"), *_layouts(declared, attrs, operands, results[0], const, choices)]
    for precision in ("", *choices.policy.floats):
        if precision and not (lowers(results[0]) and choices.policy.allows(op, precision) and op != "cast"):
            continue
        for taken, produced in variants:
            states = tuple(
                State(layout, precision if lowers(type) else "") for layout, type in zip(taken, operands, strict=True)
            )
            ways[Implementation(states, State(produced, precision))] = None
            if is_product(op) and precision:
                ways[Implementation(states, State(produced))] = None
            elif is_product(op) and lowers(results[0]):
                ways |= {Implementation(states, State(produced), how): None for how in choices.policy.arithmetic}
    return tuple(ways)


def is_view(op: str, attrs: Mapping[str, Any], operands: Types, implementation: Implementation) -> bool:
    """Return whether an implementation moves nothing: a transpose between layouts in which the elements lie alike.

    >>> column = Implementation((PLAIN,), State("column"))
    >>> is_view("transpose", {"perm": (1, 0)}, [TensorType.of("float32", (2, 3))], column)
    True
    """
    if op != "transpose" or operands[0] is None or operands[0].shape is None:
        return False
    rank = operands[0].rank
    source = LAYOUTS[implementation.operands[0].layout].order(rank)
    target = LAYOUTS[implementation.result.layout].order(rank)
    if source is None or target is None or implementation.operands[0].precision != implementation.result.precision:
        return False
    return tuple(attrs["perm"][axis] for axis in target) == source and target != source


def converted_shape(type: TensorType, layout: str) -> TensorType:
    """The type with its dims in the order in which a layout stores them."""
    return type.with_shape(stored_shape(type.dims, layout))


def converting(
    type: TensorType, source: State, target: State
) -> tuple[str, Mapping[str, Any], TensorType, TensorType, Implementation | None]:
    """The operator that brings a value from one state to another: with attributes, operand, result, and its way."""
    before = source.typed(type)
    if source.precision != target.precision:
        attrs = spec("cast").complete({"to": target.typed(type).dtype.value})
        return "cast", attrs, before, target.typed(type), Implementation((State(source.layout),), State(source.layout))
    stored, wanted = LAYOUTS[source.layout].order(type.rank), LAYOUTS[target.layout].order(type.rank)
    copied = before if stored is None else converted_shape(before, source.layout)
    axes = tuple(range(type.rank))
    # Blocks are filled as a transpose fills its result: every element moves once.
    perm = axes if stored is None or wanted is None else tuple(stored.index(axis) for axis in wanted)
    attrs = spec("transpose").complete({"perm": perm})
    return "transpose", attrs, copied, copied.with_shape(tuple(copied.dims[a] for a in perm)), None


Variant = tuple[tuple[str, ...], str]


def _layouts(
    declared: OpSpec, attrs: Mapping[str, Any], operands: Types, result: TensorType, const: Sequence[bool], own: Choices
) -> Iterator[Variant]:
    """The layouts of operands and result, other than all row-major, in which a kernel can run."""
    others = [name for name in own.layouts if name != "row" and LAYOUTS[name].fits(result)]
    if declared.name == "transpose":
        yield from _views(attrs, operands, others)
    elif declared.product and not declared.windowed:
        yield from _products(operands, result, const, own)
    elif declared.index.startswith(_IMAGES):
        yield from _images(operands, const, others, own)
    elif declared.pointwise or declared.along_axes:
        for layout in others:
            if declared.along_axes and LAYOUTS[layout].order(result.rank) is None:
                continue
            taken = [_broadcast(layout, type, result) for type in operands]
            if layout in taken and None not in taken and not LAYOUTS[layout].constants:
                yield tuple(name for name in taken if name is not None), layout


def _broadcast(layout: str, type: TensorType | None, result: TensorType) -> str | None:
    """The layout an operand comes in where the result is in `layout`: the same one, or any for a vector or scalar."""
    if type is None:
        return "row"
    if type.shape is None:
        return None
    if type.rank <= 1 or all(d == 1 for d in type.dims):
        return "row"
    return layout if type.rank == result.rank and LAYOUTS[layout].fits(type) else None


def _views(attrs: Mapping[str, Any], operands: Types, others: Sequence[str]) -> Iterator[Variant]:
    """The pairs of layouts between which a transpose moves nothing."""
    type = operands[0]
    if type is None or type.shape is None:
        return
    sources = ["row", *(name for name in others if LAYOUTS[name].fits(type))]
    for source, target in itertools.product(sources, ["row", *others]):
        way = Implementation((State(source),), State(target))
        if is_view("transpose", attrs, operands, way):
            yield (source,), target


def _products(operands: Types, result: TensorType, const: Sequence[bool], own: Choices) -> Iterator[Variant]:
    """Matrix products take each operand in either order, and leave their result in either.

    A result in columns is the product of the turned operands, right by left.
    """
    a, b = operands[0], operands[1]
    if a is None or b is None or a.shape is None or b.shape is None or min(a.rank, b.rank) < 2 or result.rank < 2:
        return
    orders = [name for name in ("row", "column") if name in own.layouts]
    weights = [*orders, *(["packed"] if "packed" in own.layouts and const[1] else [])]
    rest = ("row",) * (len(operands) - 2)
    results = ("row",) if may_spread_over_nothing(b, a) else orders
    for left, right, product in itertools.product(orders, weights, results):
        if (left, right, product) != ("row", "row", "row"):
            yield (left, right, *rest), product


def _images(operands: Types, const: Sequence[bool], others: Sequence[str], own: Choices) -> Iterator[Variant]:
    """Operators on images take and leave them in one layout; filters may be packed for it."""
    image = operands[0]
    if image is None or image.shape is None:
        return
    rest = ("row",) * (len(operands) - 1)
    fitting = [name for name in others if name in _IMAGE_LAYOUTS and LAYOUTS[name].fits(image)]
    for layout in ("row", *fitting):
        if layout != "row":
            yield (layout, *rest), layout
        filters = operands[1] if len(operands) > 1 else None
        if "packed" in own.layouts and filters is not None and const[1] and LAYOUTS["packed"].fits(filters):
            yield (layout, "packed", *rest[1:]), layout
