"""Computations scheduled for a GPU: as kernels that run one after the other."""

from __future__ import annotations

from dataclasses import replace

from eqsat.runtime.kernels.expressions.expression import UnsupportedError
from eqsat.runtime.kernels.nests.computation import Computation, reads
from eqsat.runtime.kernels.nests.gpu_options import GpuMapping
from eqsat.runtime.kernels.nests.options import MappingOptions
from eqsat.runtime.kernels.nests.scheduling.chains import StatementChain
from eqsat.runtime.kernels.nests.scheduling.fusion import SharedLoops, groups, shared_axes
from eqsat.runtime.kernels.nests.scheduling.gpu_boxes import weight_of
from eqsat.runtime.kernels.nests.scheduling.gpu_elements import (
    WARP,
    block_kernel,
    thread_kernel,
    work_of,
)
from eqsat.runtime.kernels.nests.scheduling.gpu_products import product_axes, product_kernel
from eqsat.runtime.kernels.nests.scheduling.plain import without_empty
from eqsat.runtime.kernels.nests.scheduling.promotion.nests import tiled_kernel
from eqsat.runtime.kernels.nests.scheduling.schedule import scheduled
from eqsat.runtime.kernels.nests.scheduling.strides import stride
from eqsat.runtime.kernels.nests.tree import GpuKernel


def gpu_scheduled(computation: Computation, options: GpuMapping) -> list[GpuKernel]:
    """The kernels of a computation, in the order they run in.

    An extent that sizes of a call decide counts as a long one. UnsupportedError for statements whose places elements
    decide, and for those inside a loop around statements: their rounds have an order, which threads have not.
    """
    for one in computation.statements:
        if one.is_scattered or one.around is not None:
            raise UnsupportedError(f"{one.target} is written in the order of a loop")
        weight_of(one.kept)
        weight_of(one.reduced)
    kernels = _scheduled(computation, options)
    return [replace(one, is_cached=True) for one in kernels] if options.read_only_cache else kernels


def _scheduled(computation: Computation, options: GpuMapping) -> list[GpuKernel]:
    if options.is_naive:
        nodes = scheduled(computation, MappingOptions.naive())
        return [GpuKernel(nodes)] if nodes else []
    statements = [without_empty(one) for one in computation.statements]
    computation = computation.with_statements([one for one in statements if not one.is_empty])
    kernels: list[GpuKernel] = []
    for group in groups(computation, options.fusion, options.clusters):
        kernels += _kernels(group, computation, options)
    return kernels


def _kernels(group: SharedLoops, computation: Computation, options: GpuMapping) -> list[GpuKernel]:
    """One kernel of a group, or one for each of its chains where a product is among them.

    A product reads its operands again and again, which only tiles of its own keep in shared memory.
    """
    buffers = computation.buffers
    if not group.depth or any(product_axes(chain.first, buffers) for chain in group.chains):
        return [_alone(chain, computation, options) for chain in group.chains]
    shared = [shared_axes(chain, group.depth) for chain in group.chains]
    work = max(work_of(chain, axes) for chain, axes in zip(group.chains, shared, strict=True))
    make = block_kernel if work >= WARP else thread_kernel
    return [make(group.chains, shared, options)]


def _alone(chain: StatementChain, computation: Computation, options: GpuMapping) -> GpuKernel:
    """The kernel of one chain."""
    statement = chain.first
    elements, terms = weight_of(statement.kept), weight_of(statement.reduced)
    axes = product_axes(statement, computation.buffers)
    is_long = statement.reduced and terms >= options.long_reduction
    if is_long and elements <= options.few_elements and not (axes and elements >= terms):
        return block_kernel([chain], [statement.kept], options)
    if axes is not None:
        return product_kernel(chain, computation.buffers, options, *axes)
    if is_long and _is_read_along(chain, computation):
        return block_kernel([chain], [statement.kept], options)
    tiled = tiled_kernel(chain, computation.buffers, options)
    return tiled if tiled is not None else thread_kernel([chain], [statement.kept], options)


def _is_read_along(chain: StatementChain, computation: Computation) -> bool:
    """True where elements that are neighbours along the last reduced index are neighbours in memory."""
    last = chain.first.reduced[-1].name
    return any(stride(read, last, computation.buffers) == 1 for read in reads(chain.first.value))
