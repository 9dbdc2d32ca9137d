"""Statements that store results of a group, made of its operands or of an element that a schedule has."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.runtime.kernels.body import LANE, KernelBody
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords, IndexVariable
from eqsat.runtime.kernels.expressions.expression import Expr, UnsupportedError, computed
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.nests.computation import ElementRead, GroupElement
from eqsat.runtime.kernels.nests.tree import Assign, Named, Node, PackedLoop, Produced


def made(group: Group, name: str, coords: Sequence[AffineIndex]) -> Assign:
    """The element of a result at coordinates, made and stored."""
    target = ElementRead.of(name, group.results[name].dtype, coords)
    return Assign(target, GroupElement.of(name, computed(group.types[name].dtype), coords))


def stored_results(group: Group, source: str, names: Sequence[str], coords: Coords, value: Expr) -> list[Node]:
    """The elements of results that are made of an element of a value, which an expression makes."""
    body = KernelBody(group)
    element = GroupElement.of(source, computed(group.types[source].dtype), coords)
    return [Produced(element, value), *(made(group, name, body.onward(source, name, coords)) for name in names)]


def has_results(group: Group, source: str, names: Sequence[str], coords: Coords) -> bool:
    """Return whether results can be computed from the element of a value at coordinates alone."""
    probe = KernelBody(group)
    try:
        probe.store_made(source, names, coords, Expr(computed(group.types[source].dtype), "made"))
    except UnsupportedError:
        return False
    return True


def named_quotients(group: Group, source: str, names: Sequence[str], coords: Coords) -> tuple[Sequence[Node], Coords]:
    """Coordinates of a value at which results made of it are found, and the names that they need.

    Where a reshape puts quotients together anew, sums do not meet again, but with names for the quotients they do.
    """
    if has_results(group, source, names, coords):
        return (), coords
    named: dict[IndexVariable, AffineIndex] = {}
    for variable in (v for at in coords for v, _ in at.terms if v.of is not None and not v.of.reads(LANE)):
        named.setdefault(variable, AffineIndex.variable(f"part_{len(named)}", variable.size))
    plain = [
        sum((named.get(v, AffineIndex(((v, 1),))) * c for v, c in at.terms), AffineIndex.number(at.constant))
        for at in coords
    ]
    nodes = [Named(name.terms[0][0].name, AffineIndex(((v, 1),))) for v, name in named.items()]
    return nodes, tuple(plain)


def side_by_side(width: int, nodes: Sequence[Node]) -> Sequence[Node]:
    """Statements for so many elements along `LANE`; no loop for one."""
    return nodes if width == 1 else (PackedLoop(LANE, width, tuple(nodes)),)


def local_name(group: Group, stem: str) -> str:
    """A name for an array or a register of a kernel, which no value of its group has."""
    while stem in group.types:
        stem += "_"
    return stem
