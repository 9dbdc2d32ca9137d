"""Orders of statements written by hand, as relations of isl from instances to times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eqsat.runtime.kernels.nests.computation import Computation, KernelStatement
from eqsat.runtime.kernels.polyhedral.dependences import Dependences
from eqsat.runtime.kernels.polyhedral.library import isl


def is_legal_order(computation: Computation, order: str) -> bool:
    """Return whether an order keeps all dependences between the instances that it has times for.

    `S0`, `S1` … are the statements, with their indices in the order of the axes: `{ S0[i,j] -> [j,i] }`.
    """
    times = isl.UnionMap(order)
    dependences = Dependences(computation).every.intersect_domain(times.domain()).intersect_range(times.domain())
    return dependences.intersect(times.lex_ge_union_map(times)).is_empty()


def may_interchange(computation: Computation, statement: int, first: str, second: str) -> bool:
    """Return whether the loops over two indices of a statement may change places."""
    names = [axis.name for axis in computation.statements[statement].axes]
    swapped = [second if name == first else first if name == second else name for name in names]
    return is_legal_order(computation, _order(computation.statements[statement], statement, swapped))


def may_tile(computation: Computation, statement: int, sizes: Mapping[str, int]) -> bool:
    """Return whether loops over indices of a statement may be cut into tiles: all tiles outside, by size."""
    given = computation.statements[statement]
    outer = [f"floor({_dim(given, name)}/{size})" for name, size in sizes.items()]
    return is_legal_order(computation, _order(given, statement, [axis.name for axis in given.axes], outer))


def _dim(statement: KernelStatement, name: str) -> str:
    """The dimension of an index; names of comprehensions may be words of isl."""
    return f"x{[axis.name for axis in statement.axes].index(name)}"


def _order(statement: KernelStatement, number: int, names: Sequence[str], outer: Sequence[str] = ()) -> str:
    dims = ", ".join(_dim(statement, axis.name) for axis in statement.axes)
    return f"{{ S{number}[{dims}] -> [{', '.join([*outer, *(_dim(statement, name) for name in names)])}] }}"
