"""Comprehensions as operators of graphs, whose declarations derive from their text."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from keyword import iskeyword
from random import Random
from typing import Any

from eqsat.errors import ComprehensionError, EqsatError, ShapeError
from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.comprehension.graphs.forms import index_form
from eqsat.language.comprehension.graphs.laws import definition_laws
from eqsat.language.comprehension.graphs.linearity import is_linear
from eqsat.language.comprehension.graphs.orders import order_laws
from eqsat.language.comprehension.graphs.products import ProductSum, einsum_of
from eqsat.language.comprehension.graphs.reference import applied
from eqsat.language.comprehension.meaning.element_types import NAMED, UNSIGNED
from eqsat.language.comprehension.meaning.resolver import resolve
from eqsat.language.comprehension.text.parser import parse
from eqsat.language.comprehension.text.syntax import Applied, Binary, walk
from eqsat.language.declaration.registry import OPS, op
from eqsat.language.declaration.spec import REQUIRED, Operands, OpSpec, Sample
from eqsat.language.terms import Attrs, Dim, DType, Graph, Shape, TensorType, product
from eqsat.language.terms.dims import Sym
from eqsat.language.terms.dims import evaluate as size_of

#: The largest sizes that are drawn, of which a function may not accept small ones, and how often each of them.
_LARGEST, _DRAWS = (5, 9, 16, 40, 200), 24
#: How much larger a size may be made where a tensor would have no elements, and how many it is then to have.
_FARTHEST, _WANTED = 128, (1, 1, 2, 3)
#: The integer scalars that are drawn.
_SCALARS = (1, 1, 1, 2, 2, 3, 0, -1)
#: The operator of a region in its law.
NAME = "%REGION%"
#: The texts that operators were declared from, by the names of these.
_TEXTS: dict[str, str] = {}
#: Those of functions that others were put together to, by the same names.
_COMPOSED: dict[str, str] = {}
#: Those of functions that regions of graphs were written as, with the terms and the conditions of their laws.
_REGIONS: dict[str, DeclaredRegion] = {}


@dataclass(frozen=True)
class DeclaredRegion:
    """The name of a region, the text of its function, and its law, which has NAME for the operator.

    Another process declares the same operator of it.
    """

    name: str
    text: str
    law: str


def operator_of(function: TensorFunction, law: Callable[[str], str] | None = None) -> OpSpec:
    """The operator that a comprehension is in graphs, declared when it is first asked for.

    Its name is that of the function where no other operator has it, and followed by a digest of its text otherwise.
    With a `law`, of its name, that is the only one: it is what a rule makes of other functions.
    """
    said = _documentation(function)
    names = (function.name, f"{function.name}_{hashlib.blake2b(said.encode(), digest_size=8).hexdigest()}")
    known = next((OPS[name] for name in names if name in OPS and OPS[name].doc == said), None)
    if known is not None:
        return known
    name = next(name for name in names if name not in OPS and not iskeyword(name))
    return _declared(name, function, None if law is None else law(name))


def function_of(name: str) -> TensorFunction | None:
    """The function that an operator of graphs was declared from; None of an operator that is no comprehension.

    >>> from eqsat.language.comprehension.engine import comprehension
    >>> twice = comprehension("def twice(float(N) x) -> (y) { y(i) = 2 * x(i) }").twice
    >>> function_of(operator_of(twice).name).results, function_of("add")
    (('y',), None)
    """
    text = _TEXTS.get(name)
    return None if text is None else _function(text)


def is_composition(name: str) -> bool:
    """True of an operator that functions were put together to, which a graph does not have by itself."""
    return name in _COMPOSED and _COMPOSED[name] == _TEXTS.get(name)


def declare_region(region: DeclaredRegion) -> OpSpec:
    """The operator of a region of a graph, whose name ends in a digest: it is the same in every process.

    Its law is an equation of a theory, found where the region is, and no rule that is looked for elsewhere.
    """
    digest = hashlib.blake2b(f"{region.text}\n{region.law}".encode(), digest_size=6).hexdigest()
    name = f"{region.name}_{digest}"
    if name not in OPS:
        _declared(name, _function(region.text), region.law.replace(NAME, name))
        _REGIONS[name] = region
    return OPS[name]


def region_of(name: str) -> DeclaredRegion | None:
    """The region that an operator of graphs was declared from; None of any other operator."""
    return _REGIONS.get(name) if name in OPS else None


def regions_in(graph: Graph) -> tuple[DeclaredRegion, ...]:
    """The regions whose operators a graph has, to be declared where it is read."""
    found = (region_of(node.op) for node in graph.nodes)
    return tuple(dict.fromkeys(region for region in found if region is not None))


def _documentation(function: TensorFunction) -> str:
    return f"A tensor comprehension.\n\n{function!r}"


@cache
def _function(text: str) -> TensorFunction:
    """The function of a text; rules on its operator, which hash the text, are checked anew where it changes."""
    (function,) = parse(text)
    return TensorFunction(resolve(function, text))


def _declared(name: str, given_function: TensorFunction, law: str | None) -> OpSpec:
    text = _TEXTS[name] = repr(given_function)
    function = _function(text)
    scope, types = function.scope, function.types
    operands = function.operands
    names = (*operands, *scope.updated)

    def reference(xp: Any, /, *given: Any, **scalars: Any) -> Any:  # scalars may be called xp
        tensors = {one: array for one, array in zip(names, given, strict=False) if array is not None}
        return applied(xp, _function(text), {**tensors, **scalars})

    def infer(given: Operands, attrs: Attrs) -> Sequence[TensorType]:
        function = _function(text)
        types = function.types
        stated = _with_float_of(types, dict(zip(names, given, strict=False)))
        for one, type_ in zip(names, given, strict=False):
            if type_ is not None and type_.dtype is not stated[one]:
                raise ShapeError(f"{one} of {type_}", where=name, expected=f"elements of {stated[one].value}")
        if any(type_ is not None and type_.shape is None for type_ in given):
            return tuple(TensorType(stated[one], None) for one in function.results)
        shapes = {one: type_.dims for one, type_ in zip(operands, given, strict=False) if type_ is not None}
        shapes |= dict.fromkeys(function.needs, ())
        try:
            inferred = function.inferred(shapes, {one: attrs[one] for one in function.needs})
        except ComprehensionError as error:
            raise ShapeError(error.what, where=error.where, expected=error.expected, remedy=error.remedy) from None
        for one, type_ in zip(scope.updated, given[len(operands) :], strict=False):
            if type_ is not None and not _may_be(type_.dims, inferred.shapes[one]):
                asked = TensorType(stated[one], inferred.shapes[one])
                raise ShapeError(f"{one} of {type_}", where=name, expected=f"{asked}")
        return tuple(TensorType(stated[one], inferred.shapes[one]) for one in function.results)

    def flops(given: Operands, _results: Sequence[TensorType], attrs: Attrs) -> Dim:
        shapes = {one: type_.dims for one, type_ in zip(operands, given, strict=False) if type_ is not None}
        shapes |= dict.fromkeys(function.needs, ())
        inferred = function.inferred(shapes, {one: attrs[one] for one in function.needs})
        total: Dim = 0
        for one, ranges in zip(function.scope.statements, inferred.ranges, strict=True):
            work = sum(isinstance(part, Binary | Applied) for part in walk(one.value))
            total = total + product(high - low for low, high in ranges.values()) * max(work, 1)
        return total

    reference.__doc__ = _documentation(function)
    # It is its writer's, not this package's: its laws are checked where they are loaded.
    reference.__module__ = "comprehension"
    sum_of_products = _whole_sum(function)
    # Of one type of floats, operands may be of any.
    several = len({dtype for dtype in types.values() if dtype.is_float}) > 1
    linear: Sequence[int] = ()
    laws: tuple[str, ...] = ()
    sample: Any = _sampler(function, operands)
    if sample(Random(0), [None] * len(operands), {}) is None:
        sample = None  # nothing to look at laws on
    elif any(map(iskeyword, function.needs)):
        pass  # laws could not name them
    elif law is None:
        linear = [place for place, one in enumerate(operands) if is_linear(scope, types, one)]
        laws = (*definition_laws(name, function, sum_of_products), *order_laws(name, function))
    else:
        laws = (law,)
        _COMPOSED[name] = text
    return op(
        name,
        infer=infer,
        operands=(len(operands), len(names)),
        attrs=dict.fromkeys(function.needs, REQUIRED),
        flops=flops,
        sample=sample,
        multilinear=linear if len(function.results) == 1 else (),
        dtypes={place: types[one].value for place, one in enumerate(names) if several or not types[one].is_float},
        partial=_may_leave_numbers(function),
        index=index_form(function, linear) if law is None and sample is not None else "",
        laws=laws,
    )(reference)


def _may_be(dims: Shape, asked: Shape) -> bool:
    """True of a shape that may be the one asked for, whatever sizes that are named are."""
    pairs = zip(dims, asked, strict=False)
    return len(dims) == len(asked) and not any(isinstance(a - b, int) and a != b for a, b in pairs)


def _with_float_of(types: Mapping[str, DType], given: Mapping[str, TensorType | None]) -> Mapping[str, DType]:
    """The element types with floats as operands have them, where a function states one type of floats alone.

    Laws are looked at in float64, whichever type the text names.
    """
    floats = {dtype for dtype in types.values() if dtype.is_float}
    found = {one.dtype for name, one in given.items() if one is not None and types[name].is_float}
    if len(floats) != 1 or len(found) != 1 or not all(dtype.is_float for dtype in found):
        return types
    (dtype,) = found
    return {name: dtype if one.is_float else one for name, one in types.items()}


def _may_leave_numbers(function: TensorFunction) -> bool:
    """True where finite operands may make an infinity or NaN: by a quotient, a function, or an empty range."""
    for one in function.scope.statements:
        if one.statement.reduction in ("min", "max"):
            return True
        for part in walk(one.value):
            if isinstance(part, Binary) and part.operator == "/":
                return True
            if isinstance(part, Applied) and part.name not in (*function.scope.ranks, *NAMED, "min", "max"):
                return True
    return False


def _whole_sum(function: TensorFunction) -> ProductSum | None:
    """The function as one sum of products of its parameters, several and each read once; None where it is not one."""
    scope, inferred = function.scope, function.symbolic
    if len(scope.statements) != 1 or len(function.operands) < 2 or inferred is None or function.needs:
        return None
    (one,) = scope.statements
    found = einsum_of(scope, one, inferred.ranges[0], inferred.shapes, function.types)
    if found is None or sorted(found.tensors) != sorted(function.operands):
        return None
    if not function.types[one.statement.target].is_float:
        return None
    order = [found.tensors.index(name) for name in function.operands]
    return ProductSum(tuple(found.tensors[k] for k in order), tuple(found.subscripts[k] for k in order), found.result)


def _sampler(function: TensorFunction, operands: Sequence[str]) -> Any:
    """Draws of small shapes that a function accepts."""
    parameters = function.scope.parameters

    def sample(rng: Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
        given_sizes: dict[str, int] = {}
        for one, shape in zip(operands, known, strict=False):
            extents = parameters[one].extents
            if shape is not None and len(shape) != len(extents):
                return None
            for extent, dim in zip(extents, shape or (), strict=False):
                if isinstance(extent, str) and isinstance(dim, int):
                    given_sizes[extent] = dim
        free = frozenset(function.scope.sizes) - given_sizes.keys()
        dims = [] if function.symbolic is None else [d for shape in function.symbolic.shapes.values() for d in shape]
        if any(size_of(dim, given_sizes) < 1 for dim in dims if _names(dim) <= given_sizes.keys()):
            return None
        for largest in (largest for largest in _LARGEST for _ in range(_DRAWS)):
            sizes = {size: rng.randint(1, largest) for size in function.scope.sizes} | given_sizes
            scalars = {one: attrs[one] if one in attrs else rng.choice(_SCALARS) for one in function.needs}
            if any(function.types[one] in UNSIGNED and value < 0 for one, value in scalars.items()):
                continue
            if not _enlarged(sizes, scalars, free, dims, rng):
                continue
            shapes: list[Shape] = [
                tuple(sizes[e] if isinstance(e, str) else e for e in parameters[one].extents) for one in operands
            ]
            given = dict(zip(operands, shapes, strict=True))
            with suppress(EqsatError):  # sizes that the function does not take
                inferred = function.inferred(given | dict.fromkeys(function.needs, ()), scalars)
                updated = [inferred.shapes[one] for one in function.scope.updated[: max(len(known) - len(operands), 0)]]
                asked = zip(updated, known[len(operands) :], strict=True)
                is_as_asked = all(shape is None or shape == made for made, shape in asked)
                if is_as_asked and all(dim != 0 for dims in inferred.shapes.values() for dim in dims):
                    return [*shapes, *updated], scalars
            if not free and scalars.keys() <= attrs.keys():
                return None
        return None

    return sample


def _enlarged(
    sizes: dict[str, int], scalars: Mapping[str, int], free: frozenset[str], dims: Sequence[Dim], rng: Random
) -> bool:
    """Enlarge free sizes that were drawn until each of these dims is positive; False where no single one does that.

    A window of 7 by 7 has no place in most images that are drawn, nor have several in a row in hardly any.
    """
    for dim in dims:
        if size_of(dim, {**sizes, **scalars}) > 0:
            continue
        wanted = rng.choice(_WANTED)
        for name in sorted(free & _names(dim)):

            def suffices(step: int, dim: Dim = dim, name: str = name, wanted: int = wanted) -> bool:
                return size_of(dim, {**sizes, **scalars, name: sizes[name] + step}) >= wanted

            if suffices(_FARTHEST):
                sizes[name] += bisect_left(range(_FARTHEST), True, key=suffices)
                break
        else:
            return False
    return True


def _names(dim: Dim) -> frozenset[str]:
    return dim.names() if isinstance(dim, Sym) else frozenset()
