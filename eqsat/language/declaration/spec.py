"""The declaration of an operator, from which everything else derives, and shape rules for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any, Literal, TypeAlias, TypedDict

from eqsat.errors import GraphError, ShapeError
from eqsat.language.declaration.bounds import Beside, ChoicesOf
from eqsat.language.declaration.faults import declaration_at_fault
from eqsat.language.declaration.indices import IndexForm, parse_form, pointwise_form
from eqsat.language.terms import Array, Attrs, Constraint, Dim, Node, Shape, TensorType, broadcast_shapes

#: Operand types as a shape rule sees them; None for an optional operand left out.
Operands: TypeAlias = Sequence[TensorType | None]
InferRule: TypeAlias = Callable[[Operands, Attrs], Sequence[TensorType]]
FlopRule: TypeAlias = Callable[[Operands, Sequence[TensorType], Attrs], Dim]
#: Small operand shapes with attributes; None where the known ones cannot be completed.
Sample: TypeAlias = "tuple[Sequence[Shape], Mapping[str, Any]] | None"
#: Draws a sample: (rng, operands known so far, attributes known so far) -> both complete.
SampleRule: TypeAlias = Callable[[Random, Sequence[Shape | None], Mapping[str, Any]], Sample]
#: Whether finite operands of these types may make an infinity or NaN.
PartialRule: TypeAlias = Callable[[Operands, Attrs], bool]
Reference: TypeAlias = Callable[..., Any]

#: The operands on which an operator makes a result whatever their elements are: none in particular, all that fit, of
#: static shapes and none of them empty, or all.
Total: TypeAlias = Literal["", "static", "all"]

#: How operands after the first hold numbers of an operator on single elements: as large as it, one a channel, or one
#: for each place, or block of places, along an axis.
Parameters: TypeAlias = Literal["", "channel", "block"]


class Required:
    """The mark of an attribute without a default."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = Required()


@dataclass(frozen=True)
class OpSpec:
    """One operator, declared once.

    `reference(xp, *operands, **attrs)` computes the outputs with the arithmetic of the namespace `xp` (floats,
    residues or Z3 terms) and NumPy's own movement functions; `infer` gives the output types; `flops` counts
    arithmetic. `pointwise` operators act on each element of their broadcast operands alone. `multilinear` lists the
    operands in which the operator is linear one at a time. A `monotone` function of one variable leaves numbers in
    their order; an `average` of equal numbers is that number, and grows with all its elements alike. `movement`
    operators copy elements and compute nothing; `view` ones need not even copy. `random` operators are never folded nor
    merged. `deferred` ones run with the program even on constants, by the kernels and in the rounding of the runtime,
    which may run them as one with their readers. `partial` ones may make an infinity or NaN of finite operands, all
    of them or those whose types and attributes a rule says yes to. `dtypes` names the element type of operands that are
    not floats, by position, for those who draw operands.

    `index` is the index form, an einsum-like signature from which laws derive; `laws` states those that do not, in the
    syntax of rules. `instances` are the attribute settings that the generator of rules tries, the defaults alone where
    it is empty; a value may be a function of the operands' shapes, or of a constant's own, that returns the attribute,
    or one that does not fit where there is none. `inputs_only` operators it applies to inputs and constants, never to
    results.

    The other fields are those of `Facts`.
    """

    name: str
    reference: Reference
    infer: InferRule
    min_operands: int
    max_operands: int | None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    flops: FlopRule | None = None
    sample: SampleRule | None = None
    pointwise: bool = False
    commutative: bool = False
    multilinear: frozenset[int] = frozenset()
    monotone: bool = False
    average: bool = False
    movement: bool = False
    view: bool = False
    random: bool = False
    deferred: bool = False
    partial: bool | PartialRule = False
    dtypes: Mapping[int, str] = field(default_factory=dict)
    onnx: str | None = None
    doc: str = ""
    index: str = ""
    laws: tuple[str, ...] = ()
    instances: tuple[Mapping[str, Any], ...] = ()
    inputs_only: bool = False
    shapes: str = ""
    product: bool = False
    selects: bool = False
    accumulates: bool = False
    sensitive: bool = False
    rowwise: bool = False
    hides_sign: bool = False
    total: Total = ""
    choices: ChoicesOf = field(default_factory=dict)
    beside: Beside | None = None
    on_dims: Callable[..., Array | tuple[Array, ...]] | None = None
    unchanged: Callable[[Node, TensorType, TensorType], bool] | None = None
    portable: Callable[[Attrs, Sequence[Array | None]], bool] | None = None
    demands: Callable[[Sequence[Shape], Shape, Attrs], Iterator[Constraint]] | None = None
    hands_on: bool = False
    windowed: bool = False
    strided: bool = False
    pulled: bool = False
    indexed: bool = False
    ignores_zeros: bool = False
    generated: bool = False
    stepwise: bool = False
    along_axes: bool = False
    adds_axis: bool = False
    asks_finite: bool = False
    clamps: bool = False
    fails_on_integers: bool = False
    parameters: Parameters = ""
    affine: bool = False
    family: str = ""

    @cached_property
    def form(self) -> IndexForm | None:
        """The parsed index form; that of a pointwise operator follows from its number of operands."""
        if self.index:
            return parse_form(self.index, self.name)
        if self.pointwise and self.min_operands == self.max_operands:
            return parse_form(pointwise_form(self.min_operands), self.name)
        return None

    def complete(self, attrs: Mapping[str, Any]) -> Attrs:
        """The attributes with defaults filled in; GraphError for one that is unknown or missing."""
        if not attrs and self._plain is not None:
            return self._plain
        for name in attrs:
            if name not in self.attrs:
                raise GraphError(
                    f"{self.name} has no attribute {name!r}",
                    expected="one of " + (", ".join(self.attrs) or "none"),
                )
        full = {**self.attrs, **attrs}
        for name, value in full.items():
            if value is REQUIRED:
                raise GraphError(f"{self.name} needs attribute {name!r}", expected=f"{self.name}({name}=…)")
        return attrs if isinstance(attrs, Attrs) and len(attrs) == len(full) else Attrs(full)

    @cached_property
    def _plain(self) -> Attrs | None:
        """The attributes where none is given; None where one has to be."""
        return None if any(value is REQUIRED for value in self.attrs.values()) else Attrs(self.attrs)

    def result_types(self, operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
        """The types of the outputs; ShapeError where the operands do not fit."""
        count = len(operands)
        if count < self.min_operands or (self.max_operands is not None and count > self.max_operands):
            most = "any number" if self.max_operands is None else str(self.max_operands)
            raise ShapeError(f"{self.name} got {count} operands", expected=f"{self.min_operands} to {most}")
        if self.is_shipped:
            try:
                return tuple(self.infer(operands, attrs))
            except ZeroDivisionError:
                given = ", ".join(map(str, operands))
                expected = "attributes, groups for one, that are not 0"
                raise ShapeError(f"{self.name} of {given} with {dict(attrs)}", expected=expected) from None
        with declaration_at_fault(self, "shape rule", operands, attrs):
            return tuple(self.infer(operands, attrs))

    def is_partial(self, operands: Operands, attrs: Attrs) -> bool:
        """True if finite operands of these types may make an infinity or NaN."""
        if not callable(self.partial):
            return self.partial
        with declaration_at_fault(self, "rule for partial", operands, attrs):
            return self.partial(operands, attrs)

    def drawn(self, rng: Random, shapes: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
        """Shapes and attributes as the sample rule makes them; None where those given have a rank it does not take."""
        if self.sample is None:
            return None
        with declaration_at_fault(self, "sample rule", (), {"shapes": tuple(shapes), **attrs}):
            try:
                return self.sample(rng, shapes, attrs)
            except (IndexError, TypeError, ValueError):
                return None

    @cached_property
    def is_shipped(self) -> bool:
        """True if the operator is declared in this package, whose tests look after it."""
        return self.reference.__module__.partition(".")[0] == __name__.partition(".")[0]

    @property
    def is_foldable(self) -> bool:
        """True if results over constants are constants, computed before the program runs."""
        return not (self.random or self.deferred)

    @property
    def first_parameter(self) -> str:
        """The name of the parameter that the reference takes before its operands: xp, the arithmetic."""
        return next(iter(inspect.signature(self.reference).parameters), "")

    @property
    def where(self) -> str:
        """File and line of the reference."""
        code = getattr(self.reference, "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else self.name


class Facts(TypedDict, total=False):
    """Facts of an operator that tables elsewhere are made from; each is a field of `OpSpec`.

    `shapes` is a sentence on the shapes of operands and results, where neither an index form nor `pointwise` says it.
    """

    shapes: str
    #: It multiplies matrices or filters: products may be formed in a lower arithmetic and are added up in float32.
    product: bool
    #: It chooses among elements, and so rounds nothing.
    selects: bool
    #: It forms averages or shares, which kernels add up in float32 whatever the operands are held in.
    accumulates: bool
    #: It stays in float32 under mixed precision: a sum of many terms, an exponential or logarithm, or a quotient.
    sensitive: bool
    #: It works along rows, in whose kernels operators on single elements before and after it are computed.
    rowwise: bool
    #: No result tells the sign of a zero among the operands.
    hides_sign: bool
    total: Total
    #: All values of attributes, or of attributes that go together, up to a bound, where their names do not say it.
    choices: ChoicesOf
    #: All shapes, up to a bound, of an operand beside others.
    beside: Beside
    #: The result on small tensors of integers whose elements are dims, from attributes and operands; Undecided where
    #: the sizes of named dims decide it.
    on_dims: Callable[..., Array | tuple[Array, ...]]
    #: Whether a node hands its first operand on as it is, by the operand's type and the result's.
    unchanged: Callable[[Node, TensorType, TensorType], bool]
    #: Whether every machine and runtime makes the same of operands with these attributes; all of them where left out.
    portable: Callable[[Attrs, Sequence[Array | None]], bool]
    #: Conditions on named dims, from the dims of operands and result, and attributes.
    demands: Callable[[Sequence[Shape], Shape, Attrs], Iterator[Constraint]]
    #: Each element of the results is one of the first operand, perhaps of another element type.
    hands_on: bool
    #: It moves windows over the axes from the third on.
    windowed: bool
    #: Each result is the operand seen with other strides, where its elements lie so that this can be.
    strided: bool
    #: A kernel that reads its result may read the elements where they come from instead.
    pulled: bool
    #: Its second operand holds indices into the first: along `axis` where it has that attribute.
    indexed: bool
    #: Zeros among the elements that it reduces change nothing.
    ignores_zeros: bool
    #: It makes constants that rules name, which are worked out before a model is written.
    generated: bool
    #: It runs step by step along an axis, each on the result of the one before.
    stepwise: bool
    #: It moves elements along axes that it names, which a kernel does in any order of the axes.
    along_axes: bool
    #: Its attribute `axis` counts those of the result, which has one more than the first operand.
    adds_axis: bool
    #: It asks of each element whether it is finite, or a number.
    asks_finite: bool
    #: It holds elements between bounds, as the range of quantised results does by itself.
    clamps: bool
    #: Of integers it fails where the second operand is zero, or negative.
    fails_on_integers: bool
    parameters: Parameters
    #: What it makes of the first operand is multiplied by the second, and the third is added to that.
    affine: bool
    #: The operator at whose speed it runs, itself where left out.
    family: str


def same_as(index: int = 0) -> InferRule:
    """A shape rule: the result has the type of the operand at `index`."""

    def infer(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
        return (present(operands, index),)

    return infer


def broadcast(dtype: str | None = None, like: int = 0) -> InferRule:
    """A shape rule: operands broadcast; the dtype is that named, or that of the operand at `like`."""

    def infer(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
        given = [t for t in operands if t is not None]
        element = TensorType.of(dtype, ()).dtype if dtype else present(operands, like).dtype
        same_dtype([t for i, t in enumerate(operands) if t is not None and i >= like])
        if any(t.shape is None for t in given):
            return (TensorType(element, None),)
        return (TensorType(element, broadcast_shapes(*(t.dims for t in given))),)

    return infer


def present(operands: Operands, index: int) -> TensorType:
    """The operand at `index`, which must not be left out."""
    operand = operands[index]
    if operand is None:
        raise ShapeError(f"operand {index} is left out", expected="a tensor")
    return operand


def refuse_integers(operand: TensorType) -> None:
    """ShapeError for an operand that holds no floats, where ONNX takes none either."""
    if not operand.dtype.is_float:
        raise ShapeError(
            f"an operand of {operand.dtype.value}", expected="a tensor of floats", remedy="cast the operand"
        )


def same_dtype(operands: Sequence[TensorType]) -> None:
    """ShapeError unless all operands have one element type."""
    kinds = {t.dtype for t in operands}
    if len(kinds) > 1:
        names = ", ".join(sorted(k.value for k in kinds))
        raise ShapeError(f"element types differ: {names}", expected="one element type", remedy="cast the operands")


def normal_axis(axis: int, rank: int) -> int:
    """An axis counted from the left; ShapeError where there is none such."""
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} of a tensor of rank {rank}", expected=f"an axis from {-rank} to {rank - 1}")
    return axis % rank
