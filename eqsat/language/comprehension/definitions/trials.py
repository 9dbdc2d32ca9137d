"""Ranges of a function at a few sizes: claims on ranges are held against these where no formula states them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from eqsat.errors import BoundsError, RangeError, ShapeError
from eqsat.language.comprehension.extents.ranges import Inferred
from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.comprehension.meaning.element_types import UNSIGNED
from eqsat.language.terms import Dim
from eqsat.language.terms.dims import Atom, evaluate

#: How often sizes are drawn, how many draws that fit are kept, the largest size of half of them and of the others, and
#: the scalars.
_DRAWS, _KEPT, _LARGEST, _SCALARS = 600, 24, (9, 24), (1, 1, 1, 2, 2, 3, 5, -1, -2, 0)


@dataclass(frozen=True)
class SizeTrial:
    """The integer scalars of a trial, and the ranges and shapes that follow."""

    scalars: Mapping[str, int]
    inferred: Inferred


@lru_cache(maxsize=64)
def trials_of(function: TensorFunction) -> tuple[SizeTrial, ...]:
    """Trials at sizes that the function takes; none where few are found."""
    rng, kept = Random(0), list[SizeTrial]()
    parameters = function.scope.function.parameters
    for _ in range(_DRAWS):
        sizes = {size: rng.randint(1, rng.choice(_LARGEST)) for size in function.scope.sizes}
        scalars = {name: rng.choice(_SCALARS) for name in function.needs}
        if any(function.types[name] in UNSIGNED and value < 0 for name, value in scalars.items()):
            continue
        shapes = {
            one.name: tuple(sizes[extent] if isinstance(extent, str) else extent for extent in one.extents)
            for one in parameters
        }
        try:
            inferred = function.inferred(shapes, scalars)
        except (BoundsError, RangeError, ShapeError):
            continue  # sizes that the function does not take
        if all(low < high for ranges in inferred.ranges for low, high in _numbers(ranges)):
            kept.append(SizeTrial(scalars, inferred))
        if len(kept) == _KEPT:
            break
    return tuple(kept) if len(kept) > _KEPT // 4 else ()


def formulas_of(function: TensorFunction, trials: Sequence[SizeTrial]) -> Inferred | None:
    """The ranges and shapes for all sizes, as far as trials bear them out; None where there are none.

    A subscript by a multiple that an integer scalar states holds its index in a call, and not in a formula.
    """
    symbolic = function.symbolic
    if symbolic is None:
        return None
    for trial in trials:
        known = {name: size for name, size in trial.inferred.known.items() if isinstance(size, int)}
        for stated, found in zip(symbolic.ranges, trial.inferred.ranges, strict=True):
            for index, (low, high) in stated.items():
                if (evaluate(low, known), evaluate(high, known)) != found[index]:
                    return None
        for name, dims in symbolic.shapes.items():
            if tuple(evaluate(dim, known) for dim in dims) != trial.inferred.shapes[name]:
                return None
    return symbolic


def _numbers(ranges: Mapping[str, tuple[Dim, Dim]]) -> Sequence[tuple[int, int]]:
    return [(low, high) for low, high in ranges.values() if isinstance(low, int) and isinstance(high, int)]


def size_text(dim: Dim, sizes: Mapping[str, str]) -> str | None:
    """A size as an expression, given those of named sizes; None where it is none of sums, products and quotients.

    >>> from eqsat.language.terms.dims import Sym
    >>> size_text(2 * Sym.named("N") - 1, {"N": "dim(x0, 0)"})
    '2 * dim(x0, 0) - 1'
    """
    if isinstance(dim, int):
        return str(dim)
    text = ""
    for monomial, coefficient in sorted(dim.terms, key=lambda term: (not term[0], term[1] < 0)):
        factors = [_atom_text(atom, sizes) for atom, power in monomial for _ in range(power)]
        known = [factor for factor in factors if factor is not None]
        if len(known) < len(factors):
            return None
        shown = " * ".join([*([str(abs(coefficient))] if abs(coefficient) != 1 or not known else []), *known])
        sign = "-" if coefficient < 0 else "+"
        text = f"{text} {sign} {shown}" if text else shown if coefficient > 0 else f"-{shown}"
    return text or "0"


def _atom_text(atom: Atom, sizes: Mapping[str, str]) -> str | None:
    """A factor of a size: a named one, a quotient or a rest, or the smaller of two that differ by a number."""
    if isinstance(atom, str):
        return sizes.get(atom)
    function, a, b = atom
    first, second = size_text(a, sizes), size_text(b, sizes)
    if first is None or second is None:
        return None
    if function in ("floordiv", "mod"):
        return f"(({first}) {'//' if function == 'floordiv' else '%'} ({second}))"
    if function in ("min", "max"):
        apart = a - b
        if isinstance(apart, int):
            return f"({first if (apart < 0) == (function == 'min') else second})"
        return f"{function}({first}, {second})" if function == "min" else None
    return None
