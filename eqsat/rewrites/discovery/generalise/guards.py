"""Guards of element types and of finiteness, by the results of the two sides rather than by the names of operators.

A rule whose sides apply the same operations to the same elements moves elements only: it is exact in any type. One
whose sides agree bit for bit in float16 computes without rounding; if they agree in narrow integers as well it needs no
guard. Any other changes real arithmetic, and is kept to the floats wide enough for that. Finiteness is asked of the
operands whose infinities or NaN the two sides carry to different elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.errors import GraphError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.arithmetic.residues import ResidueNamespace, Residues
from eqsat.language.terms.pattern import Left, Pattern, spread_roots
from eqsat.rewrites.conditions.expression import Undefined
from eqsat.rewrites.discovery.equations.equation import variables
from eqsat.rewrites.discovery.generalise.cases import LeftSideInstance, elements, with_dtype
from eqsat.rewrites.instances.elements import Drawn
from eqsat.rewrites.instances.instance import operands
from eqsat.rewrites.rules.term import output_types, values

#: Instances looked at for infinities, and for rounding.
_CASES, _MORE = 10, 40
_NUMBERS = np.array([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0])


@dataclass(frozen=True, slots=True)
class Guards:
    """Guards of a rule on element types, "wide", "floating" or nothing, and the tensors that must be finite."""

    kind: str = ""
    first: str = ""
    finite: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The guards in the syntax of rules."""
        kind = (f"{self.kind}({self.first.removeprefix('*')}{'[0]' * self.first.startswith('*')})",)
        return (*(kind if self.kind else ()), *((f"finite({', '.join(self.finite)})",) if self.finite else ()))


def floats_of(left: Left, case: LeftSideInstance) -> tuple[str, ...]:
    """The float tensors of a left side in the order in which it reads them, sequences with a star."""
    tensors = case.bindings.tensors
    names = dict.fromkeys(n for root in spread_roots(left) for n in variables(root))
    return tuple("*" * isinstance(tensors[n], tuple) + n for n in names if _floats(tensors[n]))


def guards(left: Left, right: Sequence[Pattern], cases: Sequence[LeftSideInstance]) -> Guards:
    """The guards a rule needs, judged on instances at which its sides are equal."""
    chosen = cases[:_CASES]
    if not chosen or all(_moves(case, right) for case in chosen):
        return Guards()
    names = floats_of(left, chosen[0])
    if not names:
        return Guards()
    if not all(_agree(case, right, "float16", number % 3) for number, case in enumerate(cases[:_MORE])):
        kind = "wide"
    else:
        narrow = all(_agree(case, right, dtype, 0) for case in chosen for dtype in ("int8", "uint8"))
        kind = "" if narrow else "floating"
    spoiled = _spoiled(right, chosen, [n.removeprefix("*") for n in names])
    return Guards(kind, names[0], tuple(n for n in names if n.removeprefix("*") in spoiled))


def _floats(thing: Any) -> bool:
    first = thing[0] if isinstance(thing, tuple) else thing
    return bool(first.type.dtype.is_float)


# --- movement ------------------------------------------------------------------------------------------------------


class _Free(ResidueNamespace):
    """Arithmetic as random functions of the operands: equal results were made by the same operations.

    What commutes bit by bit in floating point does here. A sum over axes is one function of all its elements, in any
    order, since no operator promises one.
    """

    def add(self, a: Any, b: Any) -> Any:
        """A random function of two elements in any order."""
        return self._unordered("add", a, b)

    def multiply(self, a: Any, b: Any) -> Any:
        """A random function of two elements in any order."""
        return self._unordered("multiply", a, b)

    def subtract(self, a: Any, b: Any) -> Any:
        """A random function."""
        return self._random("subtract", a, b)

    def divide(self, a: Any, b: Any) -> Any:
        """A random function."""
        return self._random("divide", a, b)

    def negative(self, a: Any) -> Any:
        """A random function."""
        return self._random("negative", a)

    def power(self, a: Any, b: Any) -> Any:
        """A random function."""
        return self._random("power", a, b)

    def matmul(self, a: Any, b: Any) -> Any:
        """A sum of products."""
        a, b = np.asarray(a), np.asarray(b)
        rows, columns = (a[None, :] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)
        result = self.sum(self.multiply(rows[..., :, :, None], columns[..., None, :, :]), axis=-2)
        result = result[..., 0, :] if a.ndim == 1 else result
        return result[..., 0] if b.ndim == 1 else result

    def sum(self, x: Any, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
        """A random function of the elements in any order; of one element, itself."""
        return self._all("sum", x, axis, keepdims)

    def prod(self, x: Any, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
        """A random function of the elements in any order; of one element, itself."""
        return self._all("product", x, axis, keepdims)

    def _unordered(self, name: str, a: Any, b: Any) -> Any:
        return self._random(name, np.minimum(a, b), np.maximum(a, b))

    def _all(self, name: str, x: Any, axis: int | tuple[int, ...] | None, keepdims: bool) -> Any:
        x = np.asarray(x)
        total = np.sum(x, axis=axis, keepdims=keepdims, dtype=np.int64)
        if total.size == x.size:
            return total % self.prime
        mixed = np.sum(self._random(name, x), axis=axis, keepdims=keepdims, dtype=np.int64)
        return self._random(f"{name} of all", mixed % self.prime)


class _Formulas(Residues):
    """The interpretation whose elements stand for how they were computed."""

    def __init__(self) -> None:
        super().__init__()
        self._residues = _Free()


def _moves(case: LeftSideInstance, right: Sequence[Pattern]) -> bool:
    terms = case.right(right)
    if terms is None:
        return False
    arrays = case.residues(7)
    ours, theirs = (values(side, _Formulas(), arrays) for side in (case.left, terms))
    return all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


# --- element types -------------------------------------------------------------------------------------------------


def _agree(case: LeftSideInstance, right: Sequence[Pattern], dtype: str, seed: int) -> bool:
    """Return whether both sides are the same bit for bit in an element type."""
    bindings = with_dtype(case.bindings, dtype)
    rng = np.random.default_rng((seed, 11))
    try:
        instance = LeftSideInstance(case.rule, bindings, seed)
        terms = instance.right(right)
        if terms is None:
            return False
        arrays = {id(o): elements(o, _random(o, dtype, rng, seed)) for o in operands(bindings)}
        for operand in instance.operands:
            if operand.type.dtype.is_integer and operand.array is None:
                arrays[id(operand)] = _random(operand, dtype, rng, seed)
        with np.errstate(all="ignore"):
            ours, theirs = (values(side, Floats(), arrays) for side in (instance.left, terms))
    except (GraphError, Undefined, TypeError, ValueError):  # an operator that does not take the type
        return False
    if output_types(instance.left) != output_types(terms):
        return False
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(ours, theirs, strict=True))


def _random(operand: Drawn, dtype: str, rng: np.random.Generator, seed: int) -> Any:
    shape = operand.type.static
    if dtype == "float16":
        return (rng.normal(0.0, (1.0, 100.0, 5000.0)[seed % 3], shape)).astype(np.float16)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


# --- infinities and NaN --------------------------------------------------------------------------------------------


def _spoiled(right: Sequence[Pattern], cases: Sequence[LeftSideInstance], names: list[str]) -> list[str]:
    """The tensors that must be finite: with an infinity or NaN in one of them, or in all others, the sides differ."""
    needed = [n for n in names if not _carried(right, cases, {n})]
    rest = set(names) - set(needed)
    if len(rest) > 1 and not _carried(right, cases, rest):
        return names
    return needed


def _carried(right: Sequence[Pattern], cases: Sequence[LeftSideInstance], names: set[str]) -> bool:
    """Return whether infinities and NaN in some tensors come out at the same elements on both sides."""
    for number, case in enumerate(cases):
        terms = case.right(right)
        if terms is None:
            return False
        for draw in range(3):
            rng = np.random.default_rng((number, draw))
            arrays = {id(o): elements(o, rng.choice(_NUMBERS, o.type.static)) for o in case.operands}
            for name in names:
                thing = case.bindings.tensors[name]
                for operand in thing if isinstance(thing, tuple) else (thing,):
                    _spoil(arrays[id(operand)], rng)
            with np.errstate(all="ignore"):
                ours, theirs = (values(side, Floats(wide=True), arrays) for side in (case.left, terms))
            if not all(_same_kind(a, b) for a, b in zip(ours, theirs, strict=True)):
                return False
    return True


def _spoil(array: Any, rng: np.random.Generator) -> None:
    if array.size:
        flat = array.reshape(-1)
        for value in (np.inf, -np.inf, np.nan)[: max(1, array.size // 2)]:
            flat[int(rng.integers(array.size))] = value


def _same_kind(a: Any, b: Any) -> bool:
    """Infinite with one sign, NaN, or finite at the same elements."""
    if a.dtype.kind != "f":
        return bool(np.array_equal(a, b))
    infinite = np.isinf(a) | np.isinf(b)
    return bool((np.isnan(a) == np.isnan(b)).all() and (a[infinite] == b[infinite]).all())
