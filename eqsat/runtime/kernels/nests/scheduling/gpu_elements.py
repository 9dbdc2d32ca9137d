"""Kernels whose threads compute whole elements, or whose blocks reduce one element together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, unflattened
from eqsat.runtime.kernels.nests.computation import ElementRead, KernelBuffer, LoopAxis
from eqsat.runtime.kernels.nests.extents import is_several, rounds
from eqsat.runtime.kernels.nests.gpu_options import GpuMapping
from eqsat.runtime.kernels.nests.scheduling.chains import StatementChain, following_nodes
from eqsat.runtime.kernels.nests.scheduling.gpu_boxes import (
    block_variable,
    blocks_of,
    bound_of,
    counted,
    places,
    weight_of,
)
from eqsat.runtime.kernels.nests.scheduling.values import neutral, own_element
from eqsat.runtime.kernels.nests.tree import Assign, Barrier, GpuKernel, Guard, Local, Loop, Named, Node, ThreadFold

#: Variables of CUDA C++, with signs: sums of them may be less than 0.
BLOCK, THREAD, THREAD_ROW = "(int)blockIdx.x", "(int)threadIdx.x", "(int)threadIdx.y"
WARP = 32
#: Indices of statements in the variables of a kernel.
Places = Mapping[str, AffineIndex]


def power_of_two(least: int) -> int:
    """The least power of two that is no less than a number."""
    return 1 << max(least - 1, 0).bit_length()


def reduced_loops(axes: Sequence[LoopAxis], body: Node, unroll: int) -> Node:
    """Loops over reduced indices, the last innermost, of which rounds are written out."""
    for number, axis in enumerate(reversed(axes)):
        body = Loop(axis.name, axis.extent, (body,), unroll=unroll if not number else 1, is_reduced=True)
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
    first, count = counted(reduced, "terms_p")
    sizes = [axis.extent for axis in reduced]
    local, total = _register("acc", chain)
    turns = rounds(count, threads)
    point = AffineIndex.variable("turn_p", bound_of(turns)) * threads + AffineIndex.variable(THREAD, threads)
    named, sums = _named_indices(reduced, AffineIndex.variable("point_p", bound_of(count)), "")
    if not first:  # what numbers decide is put in where it is read
        named, sums = (
            [],
            list(unflattened(AffineIndex.variable("point_p", bound_of(count)), list(map(bound_of, sizes)))),
        )
    inside = {**at, **{axis.name: index for axis, index in zip(reduced, sums, strict=True)}}
    update = Assign(total, statement.value, statement.reduction, inside)
    finish: list[Node] = []
    if not statement.is_fresh:
        finish.append(Assign(total, own_element(statement), statement.reduction, at))
    finish += _stores(chain, total, at)
    return [
        *first,
        local,
        Assign(total, neutral(statement.reduction, dtype), "", at),
        Loop("turn_p", turns, (Named("point_p", point), Guard(((point, count),), (*named, update))), is_reduced=True),
        ThreadFold(total, total, statement.reduction, threads),
        Guard(((AffineIndex.variable(THREAD, threads), 1),), tuple(finish)),
    ]


def _named_indices(axes: Sequence[LoopAxis], place: AffineIndex, suffix: str) -> tuple[list[Node], list[AffineIndex]]:
    """Names for the indices at a place of a box, and these as sums."""
    return places([f"{axis.name}{suffix}" for axis in axes], [axis.extent for axis in axes], place)


def _rest(chain: StatementChain, shared: Sequence[LoopAxis]) -> list[LoopAxis]:
    """The indices of the target that are not shared with other chains and have more than one value."""
    return [axis for axis in chain.first.kept if axis not in shared and is_several(axis.extent)]


def work_of(chain: StatementChain, shared: Sequence[LoopAxis]) -> int:
    """The number of values that a chain computes for each value of the shared indices, by the weights of boxes."""
    return weight_of(_rest(chain, shared)) * weight_of(chain.first.reduced)


def thread_kernel(
    chains: Sequence[StatementChain], shared: Sequence[Sequence[LoopAxis]], options: GpuMapping
) -> GpuKernel:
    """A kernel that has a thread for each value of the shared indices, the last of which runs along threads.

    A thread reads what other chains made for its own values alone, so that no barrier is needed.
    """
    before, total = counted(shared[0], "total_p")
    threads = min(options.threads, -(-weight_of(shared[0]) // WARP) * WARP)
    blocks = blocks_of(shared[0], threads)
    suffix = "_r" if len(chains) > 1 else ""
    point = block_variable(blocks, BLOCK, threads) * threads + AffineIndex.variable(THREAD, threads)
    named, sums = _named_indices(shared[0], AffineIndex.variable("point_p", bound_of(total)), suffix)
    body: list[Node] = []
    for chain, axes in zip(chains, shared, strict=True):
        at = {axis.name: index for axis, index in zip(axes, sums, strict=True)}
        nodes = element_nodes(chain, at, options.unroll)
        for axis in reversed(_rest(chain, axes)):
            nodes = [Loop(axis.name, axis.extent, tuple(nodes))]
        body += nodes
    first: list[Node] = [*before, Named("point_p", point)] if is_several(total) else []
    return GpuKernel((*first, Guard(((point, total),), (*named, *body))), blocks, (threads, 1))


def block_kernel(
    chains: Sequence[StatementChain], shared: Sequence[Sequence[LoopAxis]], options: GpuMapping
) -> GpuKernel:
    """A kernel that has a block for each value of the shared indices, whose threads share all else.

    Between chains all threads wait: each may read what others wrote for the same values.
    """
    blocks = blocks_of(shared[0])
    work = max(work_of(chain, axes) for chain, axes in zip(chains, shared, strict=True))
    threads = min(options.reduction_threads, max(WARP, power_of_two(work)))
    suffix = "_r" if len(chains) > 1 else ""
    named, sums = _named_indices(shared[0], block_variable(blocks, BLOCK), suffix)
    body: list[Node] = [*named]
    for number, (chain, axes) in enumerate(zip(chains, shared, strict=True)):
        at = {axis.name: index for axis, index in zip(axes, sums, strict=True)}
        body += [Barrier()] if number else []
        body.append(Loop("", 1, tuple(_of_block(chain, _rest(chain, axes), at, threads, options))))
    return GpuKernel(tuple(body), blocks, (threads, 1))


def _of_block(
    chain: StatementChain, rest: Sequence[LoopAxis], at: Places, threads: int, options: GpuMapping
) -> list[Node]:
    """The elements of a chain for fixed values of the shared indices."""
    elements, reduced = weight_of(rest), weight_of(chain.first.reduced)
    if reduced > 1 and (elements == 1 or (elements < WARP and reduced >= options.long_reduction)):
        nodes = reduced_nodes(chain, at, threads)
        for axis in reversed(rest):
            nodes = [Loop(axis.name, axis.extent, tuple(nodes))]
        return nodes
    before, count = counted(rest, "count_p")
    turns = rounds(count, threads)
    point = AffineIndex.variable("turn_p", bound_of(turns)) * threads + AffineIndex.variable(THREAD, threads)
    named, sums = _named_indices(rest, AffineIndex.variable("point_p", bound_of(count)), "")
    inside = {**at, **{axis.name: index for axis, index in zip(rest, sums, strict=True)}}
    first: list[Node] = [Named("point_p", point)] if is_several(count) else []
    guard = Guard(((point, count),), (*named, *element_nodes(chain, inside, options.unroll)))
    return [*before, Loop("turn_p", turns, (*first, guard))]
