"""Sizes of a function that stay free: each call gives them, and what is compiled holds for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from eqsat.errors import EqsatError, UsageError, nearest
from eqsat.language.comprehension.extents.ranges import Inferred
from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.terms import Dim
from eqsat.language.terms.dims import Atom, Sym, dim_max, dim_min, evaluate, floordiv

#: What to do about a size that cannot stay free.
REMEDY = "leave it out of free: a kernel is compiled for each of its values then"


def check_free(function: TensorFunction, free: Sequence[str]) -> tuple[str, ...]:
    """The names of sizes that stay free, each once; UsageError for what is no size of the function."""
    where = f"free sizes of {function.name}"
    names = tuple(dict.fromkeys((free,) if isinstance(free, str) else free))
    for name in names:
        if name in function.needs:
            raise UsageError(
                f"{name!r}, an integer scalar",
                where=where,
                expected="sizes of tensors: ranges follow from the value of a scalar, not from its name",
                remedy="leave it out of free, or make it the size of a parameter",
            )
        if name not in function.scope.sizes:
            known = ", ".join(function.scope.sizes)
            raise UsageError(
                f"{name!r}, which is no size",
                where=where,
                expected=known or "none: all extents of its parameters are numbers",
                remedy=nearest(str(name), function.scope.sizes) or "write extents that are to vary as names",
            )
    return names


def with_free(function: TensorFunction, inferred: Inferred, free: Sequence[str]) -> Inferred:
    """The ranges and shapes of a call, with sizes left free; UsageError where they do not follow for all of them.

    What extents are where one would be less than 1 is left out: `holds_at` says of which calls they are those.
    """
    open_sizes = {name: Sym.named(name) for name in free}
    shapes = {
        one.name: [
            open_sizes.get(extent, dim) if isinstance(extent, str) else dim
            for extent, dim in zip(one.extents, inferred.shapes[one.name], strict=True)
        ]
        for one in function.scope.function.parameters
    }
    try:
        made = function.inferred(shapes, {name: evaluate(inferred.known[name], {}) for name in function.needs})
    except EqsatError as error:
        raise UsageError(
            f"{', '.join(free)} cannot stay free: {error.what}",
            where=error.where,
            expected=error.expected,
            remedy=REMEDY,
        ) from None
    ranges = tuple({name: (_of_many(low), _of_many(high)) for name, (low, high) in one.items()} for one in made.ranges)
    made = replace(made, ranges=ranges, shapes={name: tuple(map(_of_many, dims)) for name, dims in made.shapes.items()})
    for name, dim in _extents(function, made):
        if not is_sum(dim):
            raise UsageError(
                f"{', '.join(free)} cannot stay free: {name} has the extent {dim}",
                where=function.name,
                expected="extents that are sums of sizes, and of quotients of these by numbers",
                remedy=REMEDY,
            )
    return made


def _of_many(dim: Dim) -> Dim:
    """A dim where sizes are large: what the larger of a sum and 0 is then."""
    if isinstance(dim, int):
        return dim
    total: Dim = 0
    for monomial, factor in dim.terms:
        product: Dim = factor
        for atom, power in monomial:
            for _ in range(power):
                product = product * _atom_of_many(atom)
        total = total + product
    return total


def _atom_of_many(atom: Atom) -> Dim:
    if isinstance(atom, str):
        return Sym.named(atom)
    function, a, b = atom[0], _of_many(atom[1]), _of_many(atom[2])
    if function == "max" and b == 0 and isinstance(a, Sym):
        signs = {factor > 0 for monomial, factor in a.terms if monomial}
        if len(signs) == 1:
            return a if signs == {True} else 0
    if function == "mod" and isinstance(a, Sym):
        return a % b
    computed = {"floordiv": floordiv, "max": dim_max, "min": dim_min}
    return computed[function](a, b) if function in computed else Sym.function(function, a, b)


def _extents(function: TensorFunction, inferred: Inferred) -> Iterator[tuple[str, Dim]]:
    """The extents of indices and tensors, with their names."""
    for one, ranges in zip(function.scope.statements, inferred.ranges, strict=True):
        for name in one.every_index:
            low, high = ranges[name]
            yield name, high - low
            yield name, low
    for name, dims in inferred.shapes.items():
        yield from ((name, dim) for dim in dims)


def is_sum(dim: Dim) -> bool:
    """True of sums of sizes times numbers, and of quotients and remainders of sums that grow with sizes by numbers."""
    if isinstance(dim, int):
        return True
    return all(not monomial or (len(monomial) == 1 and _is_one(*monomial[0])) for monomial, _ in dim.terms)


def _is_one(atom: Atom, power: int) -> bool:
    if power != 1 or isinstance(atom, str):
        return power == 1
    name, dividend, divisor = atom
    if name not in ("floordiv", "mod") or not isinstance(divisor, int) or divisor < 1 or isinstance(dividend, int):
        return False
    return is_sum(dividend) and all(
        not monomial or (factor > 0 and isinstance(monomial[0][0], str)) for monomial, factor in dividend.terms
    )


def holds_at(open_: Inferred, inferred: Inferred, free: Sequence[str], most: int) -> bool:
    """True where ranges and shapes with free sizes are those of a call, and no free extent is 0 or above a number."""
    sizes = {name: evaluate(inferred.known[name], {}) for name in free}

    def is_same(dim: Dim, known: Dim) -> bool:
        value = evaluate(dim, sizes)
        return value == known and (isinstance(dim, int) or 0 < value <= most)

    shapes = all(
        is_same(dim, known)
        for name, dims in open_.shapes.items()
        for dim, known in zip(dims, inferred.shapes[name], strict=True)
    )
    return shapes and all(
        evaluate(low, sizes) == known[name][0] and is_same(high - low, known[name][1] - known[name][0])
        for ranges, known in zip(open_.ranges, inferred.ranges, strict=True)
        for name, (low, high) in ranges.items()
    )
