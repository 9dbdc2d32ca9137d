"""Result types of operators by their index form: sizes of opaque axes are unknown, the same for the same operands."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.errors import ShapeError
from eqsat.language.declaration import OpSpec
from eqsat.language.declaration.spec import same_dtype
from eqsat.language.ops import spec
from eqsat.language.parametric.arrays import broadcast, broadcasts
from eqsat.language.parametric.facts import Fact
from eqsat.language.parametric.integers import NotParametric, Unknown, formula_of, integer
from eqsat.language.parametric.numbers import UnknownNumber
from eqsat.language.parametric.paths import current
from eqsat.language.parametric.standins import parametric_spec
from eqsat.language.terms import Attrs, TensorType
from eqsat.language.terms.dims import Dim
from eqsat.rewrites.conditions.axes import hidden
from eqsat.rewrites.proof.attributes import chosen
from eqsat.rewrites.proof.naturality.claims import spreading
from eqsat.rewrites.proof.opaque.borders import unpadded
from eqsat.rewrites.proof.opaque.layout import OperatorAxes, layout, sizes_of, whole_size
from eqsat.rewrites.proof.opaque.signatures import keeps_shape, takes_several_types
from eqsat.rewrites.proof.opaque.windows import NUMBERS, are_single, selects_of_any_type
from eqsat.rewrites.rules.term import result_types


class OpaqueValue:
    """A value of an attribute of which nothing is asked but whether it is the same; in instances it is the default."""

    def __init__(self, name: str, default: Any) -> None:
        self.name, self.default = name, default

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def _asked(self, *_: Any) -> Any:
        raise NotParametric(f"the value of attribute {self.name}")

    __bool__ = __len__ = __iter__ = __getitem__ = __int__ = __float__ = __index__ = _asked
    __add__ = __radd__ = __mul__ = __rmul__ = __sub__ = __rsub__ = __lt__ = __le__ = __gt__ = __ge__ = _asked
    __contains__ = __neg__ = _asked

    def __eq__(self, other: object) -> bool:
        return True if self is other else bool(self._asked())

    def __hash__(self) -> int:
        return id(self)


@dataclass(frozen=True)
class OpaqueKey:
    """All that the opaque part of an operator depends on, but for elements: a text, and integers."""

    text: str
    numbers: tuple[Dim, ...]

    def is_same(self, other: OpaqueKey) -> bool:
        """True if two are equal on all sizes of the path that is followed."""
        return self.text == other.text and all(
            a == b or current().holds(Fact.equal(a, b)) for a, b in zip(self.numbers, other.numbers, strict=True)
        )


class OpaqueTypes:
    """A rule for the result types of operators, some of which are opaque.

    On the left side all operands fit. On the right one operands fit where the same sizes along the opaque axes, with
    the same attributes, do on the left. Where a rule `moves_pads`, these are a border of the operand.
    """

    def __init__(self, opaque: frozenset[str], *, moves_pads: bool = False) -> None:
        self.opaque, self.moves_pads = opaque, moves_pads
        self.is_left = True

    def __call__(self, op: str, attrs: Attrs, operands: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        """The result types of an operator; ShapeError where operands do not fit."""
        declared = spec(op)
        if op not in self.opaque:
            spreads = declared.pointwise and declared.is_shipped and spreading(declared) == "all"
            if spreads:
                return _broadcast_types(op, attrs, operands)
            return result_types(op, attrs, operands, parametric_spec(op))
        form = declared.form
        if form is None:
            return self._with_defaults(declared, attrs, operands)
        if self.moves_pads:
            attrs, operands = unpadded(declared, attrs, operands)
        _refuse_negative(declared, attrs)
        found = layout(declared, attrs, [None if t is None else t.rank for t in operands])
        if found is None:
            raise ShapeError(f"{op} of {', '.join(map(str, operands))}", expected=f"the ranks of {declared.index}")
        given = [t for t in operands if t is not None]
        if not takes_several_types(declared):
            same_dtype([t for t in operands[: len(form.terms)] if t is not None])
        sizes = sizes_of(declared, found, attrs, operands)
        opaque = self._opaque_sizes(declared, found, attrs, operands)
        dims = [
            opaque[k] if axis.is_opaque else whole_size(declared, sizes, attrs, axis)
            for k, axis in enumerate(found.result)
        ]
        return (given[0].with_shape(tuple(dims)),)

    def _with_defaults(
        self, declared: OpSpec, attrs: Attrs, operands: Sequence[TensorType | None]
    ) -> tuple[TensorType, ...]:
        """The result types with defaults for opaque attributes, which fit on the right where they do on the left."""
        path = current()
        known: set[tuple[str, tuple[Dim, ...]]] = path.known.setdefault(("attributes", declared.name), set())
        text, numbers = attribute_key(attrs, ())
        if self.is_left:
            known.add((text, tuple(numbers)))
        elif (text, tuple(numbers)) not in known:
            raise NotParametric(f"whether {declared.name} on the right takes its attributes")
        plain = {name: declared.attrs[name] if isinstance(v, OpaqueValue) else v for name, v in attrs.items()}
        return result_types(declared.name, declared.complete(plain), operands)

    def _takes_any_space(self, declared: OpSpec, found: OperatorAxes, attrs: Attrs) -> bool:
        """True where operands of any opaque sizes fit, if windows are single: the left has these attributes, too."""
        text, numbers = attribute_key(attrs, spoken_of(declared))
        counts = [len(found.opaque(place)) for place in found.operands]
        key = OpaqueKey(f"{text} {counts}", tuple(numbers))
        known: list[OpaqueKey] = current().known.setdefault(("placed", declared.name), [])
        if self.is_left:
            known.append(key)
        return any(key.is_same(other) for other in known)

    def _opaque_sizes(
        self, declared: OpSpec, found: OperatorAxes, attrs: Attrs, operands: Sequence[TensorType | None]
    ) -> dict[int, Any]:
        """The sizes of the opaque axes of the result, by axis."""
        key = key_of(declared, found, attrs, operands)
        if self._takes_any_space(declared, found, attrs) and are_single(declared, found, attrs, operands):
            first = operands[0]
            assert first is not None
            return {k: first.dims[axis] for k, axis in zip(found.opaque(None), found.opaque(0), strict=True)}
        path = current()
        known: list[tuple[OpaqueKey, tuple[Dim, ...]]] = path.known.setdefault(("opaque sizes", declared.name), [])
        same = next((sizes for other, sizes in known if key.is_same(other)), None)
        if same is None:
            if not self.is_left:
                raise NotParametric(f"whether {declared.name} on the right takes its operands")
            same = tuple(path.unknown(f"size {axis} of {declared.name} {len(known)}", 1) for axis in found.opaque(None))
            known.append((key, same))
        if keeps_shape(declared):
            first = operands[0]
            assert first is not None
            return {axis: first.dims[axis] for axis in found.opaque(None)}
        return {axis: integer(size) for axis, size in zip(found.opaque(None), same, strict=True)}


def _broadcast_types(op: str, attrs: Attrs, operands: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
    """The result types of an operator on single elements of broadcast operands, without paths for sizes of 1.

    Its shape rule says the element types, of operands without axes.
    """
    scalars = [None if t is None else t.with_shape(()) for t in operands]
    shape = broadcast(*(t.dims for t in operands if t is not None))
    return tuple(one.with_shape(shape) for one in result_types(op, attrs, scalars))


def _refuse_negative(declared: OpSpec, attrs: Attrs) -> None:
    """NotParametric for axes that are counted from the right, which not every operator takes."""
    form = declared.form
    value = attrs[form.result.attribute] if form is not None and form.result.attribute else ()
    if any(axis < 0 for axis in (value if isinstance(value, tuple) else (value,))):
        raise NotParametric(f"axes of {declared.name} that are counted from the right")


def _spans(x: Any, y: Any) -> bool:
    shape, other = x.type.dims, y.type.dims
    if getattr(y, "uniform", None) is not None and len(other) <= len(shape):
        # Of one number, nobody reads along which axes there is one element of it: that is no matter of paths.
        pairs = zip(shape[len(shape) - len(other) :], other, strict=True)
        return all(current().decide(broadcasts(formula_of(n), formula_of(d))) for n, d in pairs)
    return _is_kept(shape, other)


def _is_kept(shape: Sequence[Any], other: Sequence[Any]) -> bool:
    """True if one shape broadcasts to another, each dim being as large or 1."""
    lead = len(shape) - len(other)
    return lead >= 0 and all(dim == size or dim == 1 for dim, size in zip(other, shape[lead:], strict=True))


def _hidden(*operands: Any) -> str:
    """Either value of `hidden`, not a path for each reason: what is known of all operands has one answer of two."""
    if not all(getattr(one, "is_matched", False) for one in operands):
        return str(hidden(*operands))
    return str(chosen(["none", "nan"], f"hidden of {', '.join(one.name for one in operands)}"))


#: Functions of conditions with fewer paths: none for each size that may be 1, as shapes are broadcast as elements are.
OF_SHAPES: Mapping[str, Callable[..., Any]] = {
    "broadcast": broadcast,
    "hidden": _hidden,
    "spans": _spans,
    "mask_spans": lambda q, k, mask: (
        mask.type.dtype == q.type.dtype and _is_kept((*q.type.dims[:3], k.type.dims[2]), mask.type.dims)
    ),
}


def attribute_key(attrs: Attrs, spoken: Collection[str]) -> tuple[str, list[Dim]]:
    """The attributes but for some as a text, and the integers among them."""
    numbers: list[Dim] = []
    texts = [f"{name}={_noted(value, numbers)}" for name, value in attrs.items() if name not in spoken]
    return " ".join(texts), numbers


def _noted(value: Any, numbers: list[Dim]) -> str:
    """A value as text, its integers set aside."""
    if isinstance(value, tuple):
        return "(" + ",".join(_noted(one, numbers) for one in value) + ")"
    if type(value) is Unknown or (isinstance(value, int) and not isinstance(value, bool)):
        numbers.append(current().reduced(formula_of(value)))
        return "#"
    if type(value) is UnknownNumber:
        return str(value.term.sexpr())
    return repr(value)


def spoken_of(declared: OpSpec) -> set[str]:
    """The attributes that an operator's form speaks of."""
    form = declared.form
    assert form is not None
    return {form.result.attribute, *form.sizes.values()} | {n for n in form.linear_if if n == "activation"}


def key_of(declared: OpSpec, found: OperatorAxes, attrs: Attrs, operands: Sequence[TensorType | None]) -> OpaqueKey:
    """The attributes that the form does not speak of, and the sizes of opaque axes."""
    text, numbers = attribute_key(attrs, spoken_of(declared))
    texts = [declared.name, text]
    for place, operand in enumerate(operands):
        if operand is None or place in found.added:
            continue
        dims = tuple(operand.dims[axis] for axis in found.opaque(place))
        kind = "number" if selects_of_any_type(declared) and operand.dtype in NUMBERS else operand.dtype.value
        texts.append(f"{place}:{kind}{len(operand.dims)}{_noted(dims, numbers)}")
    return OpaqueKey(" ".join(texts), tuple(numbers))
