"""The registry of declared operators.

Whoever looks operators up imports `OPS`, `spec` and `op` from `eqsat.language.ops`, which declares the shipped ones.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, Unpack

from eqsat.errors import DeclarationError, GraphError
from eqsat.language.declaration.checks import check_declaration, is_repeated, with_defaults
from eqsat.language.declaration.spec import (
    REQUIRED,
    Facts,
    FlopRule,
    InferRule,
    OpSpec,
    PartialRule,
    Reference,
    SampleRule,
)


class _Registry(Protocol):
    def __call__(self, reference: Reference) -> OpSpec: ...


_SPECS: dict[str, OpSpec] = {}

#: Every declared operator by name.
OPS: Mapping[str, OpSpec] = MappingProxyType(_SPECS)


def spec(name: str) -> OpSpec:
    """The declaration of an operator; GraphError names the closest ones for a name that is none."""
    declared = _SPECS.get(name)
    if declared is None:
        import difflib

        close = difflib.get_close_matches(name, _SPECS, n=3)
        hint = "did you mean " + " or ".join(close) + "?" if close else "declare it with @eqsat.op"
        raise GraphError(f"no operator {name!r}", expected="a declared operator", remedy=hint)
    return declared


def forget(name: str) -> None:
    """Take an operator that was declared here back; nothing for a name of none."""
    _SPECS.pop(name, None)


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
    **facts: Unpack[Facts],
) -> _Registry:
    """Declare an operator by its reference; its keyword parameters are the attributes, unless `attrs` says otherwise.

    The number of operands is that of the reference's positional parameters after `xp`, those with a default optional.
    The name is that of the reference where none is given. Shape and sample rule may be left out where the operator is
    pointwise, or its index form is made of names and leading dots only. DeclarationError for one that is not well
    formed. It returns a decorator of the reference that makes its OpSpec, whose fields document each argument. The
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
            infer=infer,  # type: ignore[arg-type]  # defaults are put in below
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
            **facts,
        )
        known = _SPECS.get(title)
        if known is not None and is_repeated(stated, known):
            return known
        check_declaration(stated, _SPECS)
        _SPECS[title] = declared = with_defaults(stated)
        return declared

    return declare


def _signature(reference: Reference) -> tuple[int, int | None, dict[str, Any]]:
    """The number of operands a reference takes at least and at most, and its attributes with their defaults."""
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
