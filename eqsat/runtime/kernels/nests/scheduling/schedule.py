"""Computations scheduled: statements in groups, groups in loops, by the options of a mapping."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from eqsat.language.terms import DType
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.nests.computation import Computation, KernelStatement
from eqsat.runtime.kernels.nests.extents import is_several, largest, tiles_of
from eqsat.runtime.kernels.nests.options import MappingOptions
from eqsat.runtime.kernels.nests.printing.vectors import has_vectors
from eqsat.runtime.kernels.nests.scheduling.chains import StatementChain
from eqsat.runtime.kernels.nests.scheduling.computed import computed_nodes
from eqsat.runtime.kernels.nests.scheduling.fusion import SharedLoops, apart_in, chains_of, groups, shared_axes
from eqsat.runtime.kernels.nests.scheduling.plain import plain, without_empty
from eqsat.runtime.kernels.nests.scheduling.products import product
from eqsat.runtime.kernels.nests.scheduling.tiles import Box, TileSchedule
from eqsat.runtime.kernels.nests.tree import Gemm, Gemv, Loop, Node
from eqsat.runtime.kernels.polyhedral.child import ScheduleRequest, computed_plan

#: Floats that are stored in 16 bits and computed with as float32.
_NARROW = (DType.FLOAT16, DType.BFLOAT16)
#: Rounds for each thread from which threads end at about the same time.
_ROUNDS = 4


def scheduled(computation: Computation, options: MappingOptions) -> tuple[Node, ...]:
    """The loops of a computation."""
    statements = [without_empty(one) for one in computation.statements]
    places = [place for place, one in enumerate(statements) if not one.is_empty]
    computation = computation.with_statements([statements[place] for place in places])
    if options.scheduler == "isl" and not options.is_naive and places:
        by_isl = _by_isl(computation, options, places, len(statements))
        if by_isl is not None:
            return tuple(_parallel(by_isl, options))
    nodes: list[Node] = []
    made = groups(computation, "min" if options.is_naive else options.fusion, options.clusters)
    for around, together in groupby(made, key=lambda group: group.around):
        body: list[Node] = []
        for group in together:
            for one in _divided(group, computation) if options.library else (group,):
                body += _group(one, computation, options)
        # Buffers of one round are those of the next, so that threads share what is inside of rounds.
        nodes += body if around is None else [Loop(around.name, around.extent, tuple(body), is_reduced=True)]
    return tuple(nodes)


def _by_isl(computation: Computation, options: MappingOptions, places: Sequence[int], count: int) -> list[Node] | None:
    """Loops that isl chooses for the chains of a computation; None, with a warning, where it chooses none.

    Statements that a caller's constraints order are chains of their own, as are those that BLAS computes. `places` are
    those of the statements among all `count`, by which constraints name them.
    """
    are_apart = apart_in(computation, options.clusters)
    chains = chains_of(computation, "min" if options.constraints else options.fusion, are_apart)
    if len(chains) < 2 and not options.constraints:
        return None
    calls = {
        number
        for number, chain in enumerate(chains)
        if options.blas is not None and product(chain.first, computation.buffers) is not None
    }
    runs: list[list[int]] = []
    for number, chain in enumerate(chains):
        is_joined = runs and not {number, number - 1} & calls and not are_apart(chains[number - 1].first, chain.first)
        if is_joined:
            runs[-1].append(number)
        else:
            runs.append([number])
    request = ScheduleRequest(
        tuple(map(tuple, runs)), options.fusion, options.skewing, options.constraints, tuple(places), count
    )
    found = computed_plan(computation, chains, request)
    if found.plan is None:
        warnings.warn(
            f"{computation.name}: its loops are those that are scheduled without isl: {found.reason}",
            RuntimeWarning,
            stacklevel=4,
        )
        return None

    def emit(number: int, box: Box, copies: bool) -> tuple[list[Node], list[Node]]:
        marks[0] += 1
        own = options if copies else replace(options, pack=False)
        return _chain(chains[number], computation, own, box, f"_{marks[0]}")

    marks = [0]
    return computed_nodes(found.plan, chains, options.fused_rows, emit)


def _divided(group: SharedLoops, computation: Computation) -> list[SharedLoops]:
    """A group without the chains that BLAS computes, which share no loops."""
    parts: list[SharedLoops] = []
    for chain in group.chains:
        calls = product(chain.first, computation.buffers) is not None
        if parts and not calls and parts[-1].depth:
            parts[-1] = SharedLoops((*parts[-1].chains, chain), group.depth)
        else:
            parts.append(SharedLoops((chain,), 0 if calls else group.depth))
    return [one if len(one.chains) > 1 else SharedLoops(one.chains, 0) for one in parts]


def _group(group: SharedLoops, computation: Computation, options: MappingOptions) -> list[Node]:
    if not group.depth:
        made, copies = _chain(group.chains[0], computation, options, {})
        return [*copies, *_parallel(made, options)]
    axes = [shared_axes(chain, group.depth) for chain in group.chains]
    *outer, last = axes[0]
    before: list[Node] = []
    nodes: list[Node] = []
    for count, extent, start in tiles_of(last.extent, options.fused_rows):
        tile = f"{last.name}_r"
        first = AffineIndex.variable(tile, largest(count)) * extent + start
        body: list[Node] = []
        for number, (chain, own) in enumerate(zip(group.chains, axes, strict=True)):
            box: dict[str, tuple[AffineIndex, int]] = {
                mine.name: (AffineIndex.variable(f"{shared.name}_r", largest(shared.extent)), 1)
                for mine, shared in zip(own[:-1], outer, strict=True)
            }
            box[own[-1].name] = (first, extent)
            # Copies of one buffer for several chains are made side by side.
            made, ahead = _chain(chain, computation, options, box, f"_{number}" if number else "")
            body += made
            before += ahead if start.is_number and not start.constant else []
        node: list[Node] = body if count == 1 else [Loop(tile, count, tuple(body))]
        nodes += node
    for axis in reversed(outer):
        nodes = [Loop(f"{axis.name}_r", axis.extent, tuple(nodes))]
    return [*before, *_parallel(nodes, options)]


def _chain(
    chain: StatementChain, computation: Computation, options: MappingOptions, box: Box, mark: str = ""
) -> tuple[list[Node], list[Node]]:
    """The loops of a chain, and the copies that are made before the loops around it."""
    if options.blas is not None and not box:
        calls = product(chain.first, computation.buffers, options.blas)
        if calls is not None:
            rest = StatementChain(chain.following[0], chain.following[1:], chain.stored) if chain.following else None
            made, before = ([], []) if rest is None else _chain(rest, computation, options, box)
            return [*calls, *before, *made], []
    if not options.is_naive and _takes_vectors(chain.first, computation):
        tiles = TileSchedule(chain, computation.buffers, options, box, mark)
        made = tiles.nodes()
        if made:
            return made, tiles.before
    return [node for one in (chain.first, *chain.following) for node in plain(one, box)], []


def _takes_vectors(statement: KernelStatement, computation: Computation) -> bool:
    """True of statements that tiles in registers serve: of floats, and of integers that are reduced.

    What is made of integers element by element, in one loop, the compiler makes vectors of.
    """
    dtype, stored = statement.value.dtype, computation.buffers[statement.target].dtype
    if statement.is_scattered or not (dtype is stored or (dtype is DType.FLOAT32 and stored in _NARROW)):
        return False
    return dtype.is_float or (dtype is not DType.BOOL and bool(statement.reduced) and has_vectors(statement.value))


def _parallel(nodes: Sequence[Node], options: MappingOptions) -> list[Node]:
    """Loops whose rounds are shared by threads, and calls of BLAS whose rows or columns are."""
    return list(nodes) if options.threads == 1 else [_shared(node, options.threads) for node in nodes]


def _shared(node: Node, threads: int) -> Node:
    """Work that threads share: of a loop its rounds, with those of loops directly inside while they are too few."""
    if isinstance(node, Gemm | Gemv):
        return replace(node, threads=threads)
    if not isinstance(node, Loop) or node.kind != "serial" or node.is_reduced:
        return node
    if node.extent == 1:
        return replace(node, body=tuple(_shared(one, threads) for one in node.body))
    if len(node.body) == 1 and isinstance(node.extent, int) and node.extent < _ROUNDS * threads:
        (inner,) = node.body
        if isinstance(inner, Loop) and is_several(inner.extent):
            rounds = -(-_ROUNDS * threads // node.extent)
            return replace(node, kind="parallel", body=(_shared(inner, -(-rounds // _ROUNDS)),))
    return replace(node, kind="parallel")
