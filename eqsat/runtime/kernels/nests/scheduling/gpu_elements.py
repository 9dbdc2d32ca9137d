"""Kernels whose threads compute whole elements, or whose blocks reduce one element together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, unflattened
from eqsat.runtime.kernels.expressions.expression import UnsupportedError
from eqsat.runtime.kernels.nests.computation import ElementRead, KernelBuffer, LoopAxis
from eqsat.runtime.kernels.nests.gpu_options import GpuMapping
from eqsat.runtime.kernels.nests.scheduling.chains import StatementChain, following_nodes
from eqsat.runtime.kernels.nests.scheduling.values import neutral, own_element
from eqsat.runtime.kernels.nests.tree import Assign, Barrier, BlockFold, GpuKernel, Guard, Local, Loop, Named, Node

#: Variables of CUDA C++, with signs: sums of them may be less than 0.
BLOCK, THREAD, THREAD_ROW = "(int)blockIdx.x", "(int)threadIdx.x", "(int)threadIdx.y"
WARP = 32
#: The most points of a box; with the threads beyond the last one, an int still counts them.
_MOST = 2**31 - 2**20
#: Indices of statements in the variables of a kernel.
Places = Mapping[str, AffineIndex]


def size_of(axes: Sequence[LoopAxis]) -> int:
    """The number of points of a box; UnsupportedError where an int does not count them."""
    total = math.prod(axis.count for axis in axes)
    if total > _MOST:
        raise UnsupportedError(f"{total} elements of a statement, more than an int counts,")
    return total


def power_of_two(least: int) -> int:
    """The least power of two that is no less than a number."""
    return 1 << max(least - 1, 0).bit_length()


def reduced_loops(axes: Sequence[LoopAxis], body: Node, unroll: int) -> Node:
    """Loops over reduced indices, the last innermost, of which rounds are written out."""
    for number, axis in enumerate(reversed(axes)):
        body = Loop(axis.name, axis.count, (body,), unroll=unroll if not number else 1, is_reduced=True)
    return body


def _register(name: str, chain: StatementChain) -> tuple[Node, ElementRead]:
    dtype = chain.first.value.dtype
    return Local(KernelBuffer(name, dtype, (), "local"), True), ElementRead.of(name, dtype, ())


def _stores(chain: StatementChain, total: ElementRead, at: Places) -> list[Node]:
    return following_nodes(chain, total, lambda name: _register(name, chain), lambda one: one, at)


def element_nodes(chain: StatementChain, at: Places, unroll: int) -> list[Node]:
    """An element of every target of a chain, by one thread."""
    statement = chain.first
    dtype = statement.value.dtype
    local, total = _register("acc", chain)
    nodes: list[Node] = [local]
    if statement.reduced:
        start = neutral(statement.reduction, dtype) if statement.is_fresh else own_element(statement)
        nodes.append(Assign(total, start, "", at))
        update = Assign(total, statement.value, statement.reduction, at)
        nodes.append(reduced_loops(statement.reduced, update, unroll))
    else:
        nodes.append(Assign(total, statement.value, "", at))
        if statement.reduction and not statement.is_fresh:
            nodes.append(Assign(total, own_element(statement), statement.reduction, at))
    return [*nodes, *_stores(chain, total, at)]


def reduced_nodes(chain: StatementChain, at: Places, threads: int) -> list[Node]:
    """An element of every target of a chain, reduced by all threads of a block and finished by the first.

    Reading, reducing and finishing are in one round of uniform loops, so that every thread comes to the barriers.
    """
    statement = chain.first
    dtype, reduced = statement.value.dtype, statement.reduced
    count = size_of(reduced)
    local, total = _register("acc", chain)
    turns = -(-count // threads)
    point = AffineIndex.variable("turn_p", turns) * threads + AffineIndex.variable(THREAD, threads)
    place = AffineIndex.variable("point_p", count)
    indices = unflattened(place, [axis.count for axis in reduced])
    inside = {**at, **{axis.name: index for axis, index in zip(reduced, indices, strict=True)}}
    update = Assign(total, statement.value, statement.reduction, inside)
    finish: list[Node] = []
    if not statement.is_fresh:
        finish.append(Assign(total, own_element(statement), statement.reduction, at))
    finish += _stores(chain, total, at)
    return [
        local,
        Assign(total, neutral(statement.reduction, dtype), "", at),
        Loop("turn_p", turns, (Named("point_p", point), Guard(((point, count),), (update,))), is_reduced=True),
        BlockFold(total, statement.reduction, threads),
        Guard(((AffineIndex.variable(THREAD, threads), 1),), tuple(finish)),
    ]


def _named_indices(axes: Sequence[LoopAxis], place: AffineIndex, suffix: str) -> tuple[list[Node], list[AffineIndex]]:
    """Names for the indices at a place of a box, and these as sums."""
    nodes: list[Node] = []
    sums = []
    for axis, index in zip(axes, unflattened(place, [axis.count for axis in axes]), strict=True):
        name = f"{axis.name}{suffix}"
        if axis.count > 1:
            nodes.append(Named(name, index))
        sums.append(AffineIndex.variable(name, axis.count))
    return nodes, sums


def _rest(chain: StatementChain, shared: Sequence[LoopAxis]) -> list[LoopAxis]:
    """The indices of the target that are not shared with other chains and have more than one value."""
    return [axis for axis in chain.first.kept if axis not in shared and axis.count > 1]


def work_of(chain: StatementChain, shared: Sequence[LoopAxis]) -> int:
    """The number of values that a chain computes for each value of the shared indices."""
    return size_of(_rest(chain, shared)) * size_of(chain.first.reduced)


def thread_kernel(
    chains: Sequence[StatementChain], shared: Sequence[Sequence[LoopAxis]], options: GpuMapping
) -> GpuKernel:
    """A kernel that has a thread for each value of the shared indices, the last of which runs along threads.

    A thread reads what other chains made for its own values alone, so that no barrier is needed.
    """
    total = size_of(shared[0])
    threads = min(options.threads, -(-total // WARP) * WARP)
    blocks = -(-total // threads)
    suffix = "_r" if len(chains) > 1 else ""
    point = AffineIndex.variable(BLOCK, blocks) * threads + AffineIndex.variable(THREAD, threads)
    named, sums = _named_indices(shared[0], AffineIndex.variable("point_p", total), suffix)
    body: list[Node] = []
    for chain, axes in zip(chains, shared, strict=True):
        at = {axis.name: index for axis, index in zip(axes, sums, strict=True)}
        nodes = element_nodes(chain, at, options.unroll)
        for axis in reversed(_rest(chain, axes)):
            nodes = [Loop(axis.name, axis.count, tuple(nodes))]
        body += nodes
    first: list[Node] = [Named("point_p", point)] if total > 1 else []
    return GpuKernel((*first, Guard(((point, total),), (*named, *body))), blocks, (threads, 1))


def block_kernel(
    chains: Sequence[StatementChain], shared: Sequence[Sequence[LoopAxis]], options: GpuMapping
) -> GpuKernel:
    """A kernel that has a block for each value of the shared indices, whose threads share all else.

    Between chains all threads wait: each may read what others wrote for the same values.
    """
    total = size_of(shared[0])
    work = max(work_of(chain, axes) for chain, axes in zip(chains, shared, strict=True))
    threads = min(options.reduction_threads, max(WARP, power_of_two(work)))
    suffix = "_r" if len(chains) > 1 else ""
    named, sums = _named_indices(shared[0], AffineIndex.variable(BLOCK, total), suffix)
    body: list[Node] = [*named]
    for number, (chain, axes) in enumerate(zip(chains, shared, strict=True)):
        at = {axis.name: index for axis, index in zip(axes, sums, strict=True)}
        body += [Barrier()] if number else []
        body.append(Loop("", 1, tuple(_of_block(chain, _rest(chain, axes), at, threads, options))))
    return GpuKernel(tuple(body), total, (threads, 1))


def _of_block(
    chain: StatementChain, rest: Sequence[LoopAxis], at: Places, threads: int, options: GpuMapping
) -> list[Node]:
    """The elements of a chain for fixed values of the shared indices."""
    count, reduced = size_of(rest), size_of(chain.first.reduced)
    if reduced > 1 and (count == 1 or (count < WARP and reduced >= options.long_reduction)):
        nodes = reduced_nodes(chain, at, threads)
        for axis in reversed(rest):
            nodes = [Loop(axis.name, axis.count, tuple(nodes))]
        return nodes
    turns = -(-count // threads)
    point = AffineIndex.variable("turn_p", turns) * threads + AffineIndex.variable(THREAD, threads)
    named, sums = _named_indices(rest, AffineIndex.variable("point_p", count), "")
    inside = {**at, **{axis.name: index for axis, index in zip(rest, sums, strict=True)}}
    first: list[Node] = [Named("point_p", point)] if count > 1 else []
    guard = Guard(((point, count),), (*named, *element_nodes(chain, inside, options.unroll)))
    return [Loop("turn_p", turns, (*first, guard))]
