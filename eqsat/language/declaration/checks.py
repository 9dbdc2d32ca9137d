"""Requirements on a declaration of an operator, the fields that follow where it leaves them out, and its checks."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from types import FunctionType
from typing import Any

from eqsat.errors import DeclarationError, GraphError, ShapeError
from eqsat.language.declaration.draws import form_sample
from eqsat.language.declaration.indices import IndexForm, IndexTerm, check_form, parse_form
from eqsat.language.declaration.spec import InferRule, Operands, OpSpec
from eqsat.language.terms import Attrs, Dim, Shape, TensorType, broadcast_shapes


def check_declaration(stated: OpSpec, known: Mapping[str, OpSpec]) -> None:
    """DeclarationError for a part of a declaration that cannot be meant, with file and line of the reference."""
    for what, expected, remedy in _faults(stated, known):
        raise DeclarationError(
            f"operator {stated.name!r}: {what}", where=stated.where, expected=expected, remedy=remedy
        )
    if stated.index:
        form = parse_form(stated.index, stated.name, stated.where)
        try:
            check_form(form, stated.name, stated.attrs, stated.min_operands, stated.max_operands)
        except GraphError as error:
            raise error.at(stated.where) from None


def _faults(stated: OpSpec, known: Mapping[str, OpSpec]) -> Iterator[tuple[str, str, str]]:
    if not stated.name.isidentifier() or keyword.iskeyword(stated.name):
        yield "rules could not name it", "a Python identifier", "choose another name"
    if stated.name in known:
        yield (
            "it is declared twice",
            f"one declaration an operator; {known[stated.name].where} has the other",
            "choose another name, or start a new session (restart the kernel of a notebook) to declare it otherwise",
        )
    if stated.first_parameter != "xp":
        yield (
            f"its reference takes {stated.first_parameter or 'nothing'!r} first",
            "xp, the arithmetic it computes with, before the operands",
            f"def {stated.name}(xp, x, …): return xp.multiply(…)",
        )
    most = stated.max_operands
    for title, places in (("multilinear", stated.multilinear), ("dtypes", stated.dtypes)):
        for place in sorted(places):
            if place < 0 or (most is not None and place >= most):
                yield f"{title} names operand {place}", f"operands from 0 to {(most or 0) - 1}", ""
    for title, names in (("instances", {n for one in stated.instances for n in one}),):
        for name in sorted(names - set(stated.attrs)):
            yield f"{title} name no attribute: {name!r}", "one of " + (", ".join(stated.attrs) or "none"), ""
    if stated.monotone and not (stated.pointwise and stated.max_operands == 1):
        yield (
            "monotone says nothing of it",
            "a function of one variable: pointwise=True and one operand",
            "leave monotone= out",
        )
    if stated.average and not {"axes", "keepdims"} <= set(stated.attrs):
        yield "average says nothing of it", "a reduction: attributes axes and keepdims", "leave average= out"
    for title, rule, takes in (
        ("partial", stated.partial if callable(stated.partial) else None, "the operands' types and the attributes"),
        ("infer", stated.infer, "the operands' types and the attributes"),
        ("sample", stated.sample, "a source of randomness, the shapes known and the attributes known"),
    ):
        if rule is not None and not _takes(rule, 2 + (title == "sample")):
            yield f"{title}= takes other parameters", takes, f"{title}=a function of {2 + (title == 'sample')}"
    if stated.infer is None and not _infers(stated):
        yield (
            "it has no shape rule",
            "infer=, or pointwise=True, or an index form that says all about the shapes",
            "infer=eqsat.language.declaration.spec.same_as(0) gives the result the type of the first operand",
        )


def _takes(function: Callable[..., Any], count: int) -> bool:
    """True if a function can be called with so many positional arguments."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # a builtin that does not say
        return True
    return True


def is_repeated(stated: OpSpec, known: OpSpec) -> bool:
    """True if a session declares an operator again as it was, as a notebook does whose cell is run once more.

    Rules that follow from an index form are not compared: it is the same where the form is.
    """
    if stated.reference.__module__ != "__main__":
        return False
    pairs = ((getattr(stated, f.name), getattr(known, f.name)) for f in fields(stated) if f.name != "doc")
    return all(one is None or _same(one, other) for one, other in pairs)


def _same(one: Any, other: Any) -> bool:
    """True if two parts of declarations are equal; functions where their code and their closures are."""
    if not isinstance(one, FunctionType) or not isinstance(other, FunctionType):
        return bool(one == other)
    if one.__code__ != other.__code__ or one.__defaults__ != other.__defaults__:
        return False
    cells = zip(one.__closure__ or (), other.__closure__ or (), strict=True)
    return all(_same(a.cell_contents, b.cell_contents) for a, b in cells)


def with_defaults(stated: OpSpec) -> OpSpec:
    """The declaration with the shape and sample rules that follow from its index form, or from being pointwise."""
    form = stated.form
    changed: dict[str, Any] = {}
    if stated.infer is None and form is not None:
        changed["infer"] = infer_of(form, stated)
    if stated.sample is None and form is not None:
        changed["sample"] = form_sample(form, stated.attrs, stated.instances)
    return replace(stated, **changed) if changed else stated


def _infers(stated: OpSpec) -> bool:
    return stated.pointwise or bool(stated.index and is_plain(parse_form(stated.index, stated.name, stated.where)))


def is_plain(form: IndexForm) -> bool:
    """True if a form says all about the shapes: names, 1 and leading dots, no axes that attributes set apart."""
    terms = (*form.terms, form.result)
    named = {i.name for t in form.terms for i in t.indices}
    return (
        all(i.name in named or i.name == "1" for i in form.result.indices)
        and not any(t.attribute or t.turned for t in terms)
        and not any(i.group or i.window or (i.many and i.name != "...") for t in terms for i in t.indices)
        and all(i.name != "..." for t in terms for i in t.indices[1:])
    )


def infer_of(form: IndexForm, stated: OpSpec) -> InferRule:
    """The shape rule of a plain form: indices of one name have one size, leading axes broadcast."""

    def infer(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
        given = [(term, t) for term, t in zip(form.terms, operands, strict=False) if t is not None]
        floats = [t.dtype for i, t in enumerate(operands) if t is not None and i not in stated.dtypes]
        if len(set(floats)) > 1:
            kinds = ", ".join(sorted({d.value for d in floats}))
            raise ShapeError(f"element types differ: {kinds}", expected="one element type", remedy="cast the operands")
        dtype = floats[0] if floats else given[0][1].dtype
        if any(t.shape is None for _, t in given):
            return (TensorType(dtype, None),)
        sizes, leading = _sizes(form, stated.name, [(term, t.dims) for term, t in given])
        return (TensorType(dtype, _shape(form.result, leading, sizes)),)

    return infer


def _sizes(form: IndexForm, operator: str, given: Sequence[tuple[IndexTerm, Shape]]) -> tuple[dict[str, Dim], Shape]:
    """The sizes of the indices, and the leading axes; ShapeError where shapes do not agree."""
    sizes: dict[str, Dim] = {"1": 1}
    leading: Shape = ()
    for term, shape in given:
        rest = len(shape) - term.fixed
        if rest < 0 or (rest and not term.broadcasts):
            least = " or more" if term.broadcasts else ""
            raise ShapeError(
                f"{operator} of a tensor of rank {len(shape)}", expected=f"rank {term.fixed}{least}, by {form.text!r}"
            )
        leading = broadcast_shapes(leading, shape[:rest])
        for index, size in zip(term.indices[term.broadcasts :], shape[rest:], strict=True):
            wanted = sizes.setdefault(index.name, size)
            if not isinstance(size, int):
                continue
            if isinstance(wanted, int) and size != wanted:
                raise ShapeError(
                    f"{operator} with axis {index.name} of {wanted} and of {size}",
                    expected=f"one size, by {form.text!r}",
                )
            sizes[index.name] = size
    return sizes, leading


def _shape(term: IndexTerm, leading: Shape, sizes: Mapping[str, Dim]) -> Shape:
    own = tuple(sizes[i.name] for i in term.indices[term.broadcasts :])
    return (*leading, *own) if term.broadcasts else own
