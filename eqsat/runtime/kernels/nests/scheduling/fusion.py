"""Statements that share loops: chains element by element, and groups row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat.errors import UsageError, nearest
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.expressions.expression import Expr
from eqsat.runtime.kernels.nests.computation import (
    Computation,
    Coordinate,
    ElementRead,
    KernelBuffer,
    KernelStatement,
    LoopAxis,
    names_of,
    reads,
    rebuilt,
    same_places,
    substituted,
)
from eqsat.runtime.kernels.nests.extents import is_several
from eqsat.runtime.kernels.nests.options import Fusion
from eqsat.runtime.kernels.nests.scheduling.chains import StatementChain


@dataclass(frozen=True)
class SharedLoops:
    """Chains that share loops over the first `depth` indices of all their targets."""

    chains: tuple[StatementChain, ...]
    depth: int

    @property
    def around(self) -> LoopAxis | None:
        """The loop that all statements are in, if there is one."""
        return self.chains[0].first.around


def groups(computation: Computation, fusion: Fusion, clusters: Sequence[Sequence[str]] = ()) -> list[SharedLoops]:
    """The statements of a computation in chains and groups; each alone with "min".

    With clusters of targets, statements share loops inside of one alone; UsageError for what is no target. Sharing
    loops is right where every element that one statement makes and another reads, or the other way round, has the same
    values of the shared indices in both.
    """
    are_apart = apart_in(computation, clusters)
    chains = chains_of(computation, fusion, are_apart)
    made: list[SharedLoops] = []
    for chain in chains:
        beside = made and fusion != "min" and made[-1].around == chain.first.around and _reads(chain, made[-1])
        beside = beside and not are_apart(made[-1].chains[0].first, chain.first)
        depth = _depth([*made[-1].chains, chain], fusion) if beside else 0
        if depth:
            made[-1] = SharedLoops((*made[-1].chains, chain), depth)
        else:
            made.append(SharedLoops((chain,), 0))
    return made


def apart_in(
    computation: Computation, clusters: Sequence[Sequence[str]]
) -> Callable[[KernelStatement, KernelStatement], bool]:
    """A function that tells whether clusters of targets keep statements from sharing loops; UsageError for others."""
    cluster_of = {name: number for number, names in enumerate(clusters) for name in names}
    _check(cluster_of, computation)

    def are_apart(a: KernelStatement, b: KernelStatement) -> bool:
        return bool(clusters) and (a.target not in cluster_of or cluster_of[a.target] != cluster_of.get(b.target))

    return are_apart


def _check(names: Iterable[str], computation: Computation) -> None:
    known = [name for name in computation.buffers if name not in computation.operands]
    for name in names:
        if name not in known:
            raise UsageError(
                f"clusters with {name!r}",
                where=computation.name,
                expected=", ".join(known),
                remedy=nearest(name, known),
            )


def _reads(chain: StatementChain, group: SharedLoops) -> bool:
    """True of a chain that reads what a group writes: loops that others share save no memory."""
    written = {s.target for one in group.chains for s in (one.first, *one.following)}
    return any(read.buffer in written for s in (chain.first, *chain.following) for read in _all(s))


def chains_of(
    computation: Computation, fusion: Fusion, are_apart: Callable[[KernelStatement, KernelStatement], bool]
) -> list[StatementChain]:
    """The statements of a computation in chains, in their order; each alone with "min"."""
    lists: list[list[KernelStatement]] = []
    for statement in computation.statements:
        may_follow = lists and fusion != "min" and not are_apart(lists[-1][0], statement)
        follows = _following(lists[-1], statement, computation.buffers) if may_follow else None
        if follows is not None:
            lists[-1].append(follows)
        else:
            lists.append([statement])
    chains = []
    for position, members in enumerate(lists):
        outside = {
            read.buffer for other in (*lists[:position], *lists[position + 1 :]) for s in other for read in _all(s)
        }
        stored = frozenset(
            s.target for s in members if computation.buffers[s.target].role != "temporary" or s.target in outside
        )
        chains.append(StatementChain(members[0], tuple(members[1:]), stored))
    return chains


def _all(statement: KernelStatement) -> list[ElementRead]:
    """The elements that a statement reads, that of its target included where it is updated."""
    own = [] if statement.is_fresh else [ElementRead.of(statement.target, statement.value.dtype, statement.place)]
    return [*reads(statement.value), *own]


def _following(
    members: Sequence[KernelStatement], given: KernelStatement, buffers: Mapping[str, KernelBuffer]
) -> KernelStatement | None:
    """A statement with the indices of the chain before it, if it follows element by element; None if it does not."""
    first = members[0]
    if first.around != given.around:
        return None
    kinds = {buffers[one.target].dtype for one in (*members, given)}
    if given.reduced or len(kinds) != 1 or not first.value.dtype.is_float or first.value.dtype not in kinds:
        return None
    statement = _renamed(given, first)
    if statement is None:
        return None
    written = {one.target for one in members}
    read_before = {(read.buffer, read.subscripts) for one in members for read in _all(one) if read.is_affine}
    shared = [read for read in _all(statement) if read.is_affine and (read.buffer, read.subscripts) in read_before]
    if not shared and not any(read.buffer in written for read in _all(statement)):
        return None
    for read in _all(statement):
        if read.buffer in written and not same_places(read.subscripts, first.place):
            return None
    earlier = [read for one in members for read in _all(one)]
    if any(read.buffer == statement.target and not same_places(read.subscripts, first.place) for read in earlier):
        return None
    return statement


def _renamed(given: KernelStatement, first: KernelStatement) -> KernelStatement | None:
    """A statement over the same elements as another one, with its indices; None where elements differ."""
    if len(given.place) != len(first.place):
        return None
    extents = {axis.name: axis.extent for axis in given.axes}
    extents_before = {axis.name: axis.extent for axis in first.axes}
    own = extents.keys()
    environment: dict[str, AffineIndex] = {}
    for mine, theirs in zip(given.place, first.place, strict=True):
        if not isinstance(mine, AffineIndex) or not isinstance(theirs, AffineIndex):
            return None
        if mine.constant != theirs.constant or len(mine.terms) != len(theirs.terms):
            return None
        for (variable, factor), (other, same) in zip(mine.terms, theirs.terms, strict=True):
            if factor != same:
                return None
            if variable == other and not names_of(AffineIndex(((variable, 1),))) & own:
                continue  # of a loop around both
            if variable.of is not None or extents.get(variable.name) != extents_before.get(other.name):
                return None
            environment[variable.name] = AffineIndex(((other, 1),))
    known = {axis.name for axis in given.axes if is_several(axis.extent)}
    if known != environment.keys():
        return None
    return replace(given, axes=first.kept, place=first.place, value=moved(given.value, environment))


def moved(value: Expr, environment: Mapping[str, AffineIndex]) -> Expr:
    """A value with its indices replaced."""

    def change(one: Expr) -> Expr | None:
        if isinstance(one, Coordinate):
            return Coordinate.of(substituted(one.index, environment), one.dtype)
        if isinstance(one, ElementRead):
            subscripts = [
                substituted(s, environment) if isinstance(s, AffineIndex) else moved(s, environment)
                for s in one.subscripts
            ]
            return ElementRead.of(one.buffer, one.dtype, subscripts, one.checked)
        return None

    return rebuilt(value, change)


def _depth(chains: Sequence[StatementChain], fusion: Fusion) -> int:
    """The most indices over which chains may share loops; 0 for none."""
    statements = [one for chain in chains for one in (chain.first, *chain.following)]
    fewest = min(len(chain.first.kept) for chain in chains)
    written = {one.target for one in statements}
    depth = 0
    while depth < fewest and _may_share(chains, statements, written, depth):
        depth += 1
    if any(depth == len(chain.first.axes) for chain in chains):
        depth -= 1  # a vector runs along what is left
    if fusion == "preserve3" and depth < min(3, max(len(chain.first.kept) for chain in chains)):
        return 0
    return max(depth, 0)


def _may_share(
    chains: Sequence[StatementChain], statements: Sequence[KernelStatement], written: set[str], position: int
) -> bool:
    axes = [_axis(chain.first, position) for chain in chains]
    first = axes[0]
    if (
        first is None
        or any(axis is None or axis.extent != first.extent for axis in axes)
        or not is_several(first.extent)
    ):
        return False
    places = [one.place[position] for one in statements]
    if len({place.constant for place in places if isinstance(place, AffineIndex)}) != 1:
        return False
    return all(
        same_places(read.subscripts[position : position + 1], (one.place[position],))
        for one in statements
        for read in _all(one)
        if read.buffer in written
    )


def _axis(statement: KernelStatement, position: int) -> LoopAxis | None:
    """The index that alone decides a subscript of the target."""
    place = statement.place[position]
    terms = place.terms if isinstance(place, AffineIndex) else ()
    if len(terms) != 1 or terms[0][1] != 1 or terms[0][0].of is not None:
        return None
    return next((axis for axis in statement.kept if axis.name == terms[0][0].name), None)


def shared_axes(chain: StatementChain, depth: int) -> list[LoopAxis]:
    """The indices of a chain whose loops are shared."""
    found = [_axis(chain.first, position) for position in range(depth)]
    return [axis for axis in found if axis is not None]
