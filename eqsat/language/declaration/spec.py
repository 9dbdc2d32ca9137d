"""The declaration of an operator, from which everything else derives, and the registry of declarations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from eqsat.errors import DeclarationError, GraphError, ShapeError
from eqsat.language.declaration.checks import check_declaration, declaration_at_fault, is_repeated, with_defaults
from eqsat.language.declaration.indices import Form, parse_form, pointwise_form
from eqsat.language.terms.dims import Dim
from eqsat.language.terms.graph import Attrs
from eqsat.language.terms.types import Shape, TensorType, broadcast_shapes

#: Operand types as a shape rule sees them; None for an optional operand left out.
Operands: TypeAlias = Sequence[TensorType | None]
InferRule: TypeAlias = Callable[[Operands, Attrs], Sequence[TensorType]]
FlopRule: TypeAlias = Callable[[Operands, Sequence[TensorType], Attrs], Dim]
#: Proposes small operand shapes and attributes: (rng, operands known so far, attributes known so far) -> both complete,
#: or None where the operands known so far cannot be completed.
SampleRule: TypeAlias = Callable[
    [Random, Sequence[Shape | None], Mapping[str, Any]], "tuple[Sequence[Shape], Mapping[str, Any]] | None"
]
#: Whether finite operands of these types may make an infinity or NaN.
PartialRule: TypeAlias = Callable[[Operands, Attrs], bool]
Reference: TypeAlias = Callable[..., Any]


class Required:
    """Marks an attribute without a default."""

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
    their order; an `average` of equal numbers is that number, and grows by what all its elements grow by. `movement`
    operators copy elements and compute nothing; `view` ones need not even copy. `random` operators are never folded nor
    merged. `deferred` ones run with the program even on constants, by the kernels and in the rounding of the runtime,
    which may run them as one with what reads them. `partial` ones may make an infinity or NaN of finite operands, all
    of them or those whose types and attributes a rule says yes to. `dtypes` names the element type of operands that are
    not floats, by position, for those who draw operands.

    `index` is the index form, an einsum-like signature from which laws derive; `laws` states those that do not, in the
    syntax of rules. `instances` are the attribute settings that the generator of rules tries, the defaults alone where
    it is empty; a value may be a function of the operands' shapes, or of a constant's own, that returns the attribute,
    or one that does not fit where there is none. `inputs_only` operators it applies to inputs and constants, never to
    results.
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

    @cached_property
    def form(self) -> Form | None:
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
            return tuple(self.infer(operands, attrs))
        with declaration_at_fault(self, "shape rule", operands, attrs):
            return tuple(self.infer(operands, attrs))

    def is_partial(self, operands: Operands, attrs: Attrs) -> bool:
        """Whether finite operands of these types may make an infinity or NaN."""
        if not callable(self.partial):
            return self.partial
        with declaration_at_fault(self, "rule for partial", operands, attrs):
            return self.partial(operands, attrs)

    def drawn(
        self, rng: Random, shapes: Sequence[Shape | None], attrs: Mapping[str, Any]
    ) -> tuple[Sequence[Shape], Mapping[str, Any]] | None:
        """What the sample rule makes of shapes and attributes; None where they have a rank that it does not take."""
        if self.sample is None:
            return None
        with declaration_at_fault(self, "sample rule", (), {"shapes": tuple(shapes), **attrs}):
            try:
                return self.sample(rng, shapes, attrs)
            except (IndexError, TypeError, ValueError):
                return None

    @cached_property
    def is_shipped(self) -> bool:
        """Whether the operator is declared in this package, whose tests look after it."""
        return self.reference.__module__.partition(".")[0] == __name__.partition(".")[0]

    @property
    def is_foldable(self) -> bool:
        """Whether results over constants are constants, computed before the program runs."""
        return not (self.random or self.deferred)

    @property
    def first_parameter(self) -> str:
        """What the reference takes before its operands: xp, the arithmetic."""
        return next(iter(inspect.signature(self.reference).parameters), "")

    @property
    def where(self) -> str:
        """File and line of the reference."""
        code = getattr(self.reference, "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else self.name


class _Registry(Protocol):
    def __call__(self, reference: Reference) -> OpSpec: ...


_SPECS: dict[str, OpSpec] = {}

#: Every declared operator by name.
OPS: Mapping[str, OpSpec] = MappingProxyType(_SPECS)


def spec(name: str) -> OpSpec:
    """The declaration of an operator; GraphError names the closest ones for a name that is none."""
    found = _SPECS.get(name)
    if found is None:
        import difflib

        close = difflib.get_close_matches(name, _SPECS, n=3)
        hint = "did you mean " + " or ".join(close) + "?" if close else "declare it with @eqsat.op"
        raise GraphError(f"no operator {name!r}", expected="a declared operator", remedy=hint)
    return found


def op(
    name: str | None = None,
    *,
    infer: InferRule | None = None,
    operands: int | tuple[int, int | None] | None = None,
    attrs: Mapping[str, Any] | None = None,
    flops: FlopRule | None = None,
    sample: SampleRule | None = None,
    pointwise: bool = False,
    commutative: bool = False,
    multilinear: Sequence[int] = (),
    monotone: bool = False,
    average: bool = False,
    movement: bool = False,
    view: bool = False,
    random: bool = False,
    deferred: bool = False,
    partial: bool | PartialRule = False,
    dtypes: Mapping[int, str] | None = None,
    onnx: str | None = None,
    index: str = "",
    laws: Sequence[str] = (),
    instances: Sequence[Mapping[str, Any]] = (),
    inputs_only: bool = False,
) -> _Registry:
    """Declares an operator by its reference; its keyword parameters are the attributes, unless `attrs` says otherwise.

    The number of operands is that of the reference's positional parameters after `xp`, those with a default optional.
    The name is that of the reference where none is given. Shape and sample rule may be left out where the operator is
    pointwise, or its index form is made of names and leading dots only. DeclarationError for what is not well formed.
    What comes back takes the reference and returns its OpSpec; the fields of that say what each argument means. The
    index form says which axes of operands and result are walked in step, as einsum does and Tensor Comprehensions
    (Vasilache et al., 2018).
    """
    if name is not None and not isinstance(name, str):
        raise DeclarationError("@eqsat.op on its own", expected="a call: @eqsat.op(…)", remedy="write @eqsat.op()")

    def declare(reference: Reference) -> OpSpec:
        title = reference.__name__ if name is None else name
        least, most, keywords = _signature(reference)
        if operands is not None:
            least, most = (operands, operands) if isinstance(operands, int) else operands
        stated = OpSpec(
            name=title,
            reference=reference,
            infer=infer,  # type: ignore[arg-type]  # what is left out is put in below
            min_operands=least,
            max_operands=most,
            attrs=MappingProxyType(dict(keywords if attrs is None else attrs)),
            flops=flops,
            sample=sample,
            pointwise=pointwise,
            commutative=commutative,
            multilinear=frozenset(multilinear),
            monotone=monotone,
            average=average,
            movement=movement or view,
            view=view,
            random=random,
            deferred=deferred,
            partial=partial,
            dtypes=MappingProxyType(dict(dtypes or {})),
            onnx=onnx,
            doc=inspect.getdoc(reference) or "",
            index=index,
            laws=tuple(laws),
            instances=tuple(MappingProxyType(dict(i)) for i in instances),
            inputs_only=inputs_only,
        )
        if not stated.is_shipped:
            import eqsat.language.ops  # noqa: F401  (whose names are taken)
        known = _SPECS.get(title)
        if known is not None and is_repeated(stated, known):
            return known
        check_declaration(stated, _SPECS)
        _SPECS[title] = declared = with_defaults(stated)
        return declared

    return declare


def _signature(reference: Reference) -> tuple[int, int | None, dict[str, Any]]:
    """How many operands a reference takes at least and at most, and its attributes with their defaults."""
    least, most = 0, 0
    variadic = False
    keywords: dict[str, Any] = {}
    for parameter in list(inspect.signature(reference).parameters.values())[1:]:
        if parameter.kind is parameter.VAR_POSITIONAL:
            variadic = True
        elif parameter.kind is parameter.KEYWORD_ONLY:
            keywords[parameter.name] = REQUIRED if parameter.default is parameter.empty else parameter.default
        else:
            most += 1
            least += parameter.default is parameter.empty
    return least, None if variadic else most, keywords


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
