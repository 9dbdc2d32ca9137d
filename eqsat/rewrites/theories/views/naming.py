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
    """The dims of a term as conditions write them, with conditions that state sums and products of others.

    A dim is written in those of operands, as dim(x0, 1), or where these have it only within products and sums, in those
    of a shape that an operator is given, which the term calls by a name: s0[1]. One that others make up has no name, so
    that sizes are equal in any spelling.
    """

    def __init__(self, types: Mapping[str, TensorType], shapes: Mapping[int, tuple[Dim, ...]]) -> None:
        self._known: dict[Dim, Sym] = {}
        self.conditions: list[str] = []
        #: The names of shapes, by what is given them.
        self.called: dict[int, str] = {}
        dims = [(dim, f"dim({name}, {axis})") for name, type in types.items() for axis, dim in enumerate(type.dims)]
        for dim, text in dims:
            if isinstance(dim, Sym) and is_atom(dim):
                self._known.setdefault(dim, Sym.named(text))
        for number, shape in shapes.items():
            if any(isinstance(dim, Sym) and is_atom(dim) and dim not in self._known for dim in shape):
                name = self.called[number] = f"s{len(self.called)}"
                self.conditions.append(f"len({name}) == {len(shape)}")
                for place, dim in enumerate(shape):
                    if isinstance(dim, Sym) and is_atom(dim):
                        self._known.setdefault(dim, Sym.named(f"{name}[{place}]"))
                    dims.append((dim, f"{name}[{place}]"))
        for dim, text in dims:
            known = self._known.get(dim)
            if str(known) == text or (text.startswith("dim(") and (known is not None or isinstance(dim, int))):
                continue  # its name, or what is stated of all operands
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
        sums = [one for one in self._known if isinstance(one, Sym) and not is_atom(one)]
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


def is_atom(dim: Sym) -> bool:
    """True for a dim that is a name, or a function of others, and no sum or product."""
    (monomial, number), *more = dim.terms
    return not more and number == 1 and len(monomial) == 1 and monomial[0][1] == 1
