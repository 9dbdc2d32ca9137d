"""Sizes as conditions write them: polynomials of the dims of operands."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat.language.terms.dims import Dim, Sym, polynomial_quotient
from eqsat.language.terms.types import TensorType


def size_text(size: Dim) -> str:
    """A size in dims that are named as conditions write them."""
    if isinstance(size, int):
        return str(size)
    found = ""
    for monomial, number in size.terms:
        factors = [str(atom) for atom, power in monomial for _ in range(power)]
        text = " * ".join([*([str(abs(number))] if abs(number) != 1 or not factors else []), *factors])
        sign = " - " if number < 0 else " + "
        found += sign + text if found else ("-" if number < 0 else "") + text
    return found


class DimNames:
    """The dims of operands by how conditions write them, with conditions that state sums and products of others.

    A dim that others make up has no name: it is written in theirs, so that sizes are equal in any spelling.
    """

    def __init__(self, types: Mapping[str, TensorType]) -> None:
        self._known: dict[Dim, Sym] = {}
        self.conditions: list[str] = []
        dims = [(dim, f"dim({name}, {axis})") for name, type in types.items() for axis, dim in enumerate(type.dims)]
        symbols = [(dim, text) for dim, text in dims if isinstance(dim, Sym)]
        for dim, text in symbols:
            if _is_atom(dim):
                self._known.setdefault(dim, Sym.named(text))
        for dim, text in symbols:
            if dim in self._known:
                continue
            try:
                self.conditions.append(f"{text} == {size_text(self.size(dim))}")
            except ValueError:
                self._known[dim] = Sym.named(text)

    def size(self, dim: Dim) -> Dim:
        """A size in the dims of operands; ValueError where it is no polynomial of these."""
        if isinstance(dim, int):
            return dim
        if dim in self._known:
            return self._known[dim]
        sums = [one for one in self._known if isinstance(one, Sym) and not _is_atom(one)]
        for one in sums:
            rest = polynomial_quotient(dim, one)
            if rest is not None:
                return self._known[one] * self.size(rest)
        total: Dim = 0
        for monomial, number in dim.terms:
            part: Dim = number
            for atom, power in monomial:
                known = self._known.get(Sym([(((atom, 1),), 1)]))
                if known is None:
                    raise ValueError(f"{dim} is no polynomial of the dims of operands")
                for _ in range(power):
                    part = part * known
            total = total + part
        return total


def _is_atom(dim: Sym) -> bool:
    """True for a dim that is a name, or a function of others, and no sum or product."""
    (monomial, number), *more = dim.terms
    return not more and number == 1 and len(monomial) == 1 and monomial[0][1] == 1
