"""Kernels of groups whose computations are mapped to a GPU, and the mappings that they are measured by."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

from eqsat.errors import UsageError
from eqsat.language.comprehension.graphs.operators import function_of
from eqsat.language.terms import Attrs, Node, TensorType
from eqsat.runtime.cuda.program.mappings import MAPPINGS, MappingSearch, distinct
from eqsat.runtime.kernels.expressions.expression import UnsupportedError
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.movement import MOVES, REARRANGED
from eqsat.runtime.kernels.nests.computation import Computation, reads
from eqsat.runtime.kernels.nests.gpu_options import GpuMapping
from eqsat.runtime.kernels.nests.groups.lowering import CORES, lowered_group
from eqsat.runtime.kernels.nests.printing.cuda_printer import FAILED, buffers_of, cuda_kernel
from eqsat.runtime.kernels.nests.rounds import with_free_rounds
from eqsat.runtime.kernels.nests.scheduling.gpu_schedule import gpu_scheduled
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.templates.codegen import TEMPLATES, generate
from eqsat.runtime.kernels.view import View
from eqsat.runtime.programs.launches import KernelSeries, SeriesKernel
from eqsat.runtime.tuning.config import TunerConfig
from eqsat.runtime.tuning.search import SearchKind

#: Operators that no template knows: their statements are mapped to a GPU, as those of comprehensions are.
LOWERED = frozenset(CORES) - TEMPLATES.keys() - REARRANGED.keys() - MOVES.keys()
#: What stands between a computation and its plan, and before a mapping, in the text that a table keeps.
_BY_MAPPING = " by mapping "
_NOTHING = 'extern "C" __global__ void nothing(void*) {}\n'

#: The mapping of a computation by its signature; None where nothing was measured.
MappingChoice = Callable[[str], "GpuMapping | None"]


def kernel_series(
    computation: Computation, mapping: GpuMapping, values: Mapping[str, str], comment: str = ""
) -> KernelSeries:
    """The kernels of a computation, of whose buffers `values` says which are values of a graph.

    A result without elements has one that is not launched. UnsupportedError where there is no form for a GPU.
    """
    kernels = []
    for number, tree in enumerate(gpu_scheduled(computation, mapping)):
        source = cuda_kernel(computation, tree, number)
        reads, writes = buffers_of(computation, tree)
        flag = (FAILED,) if FAILED in source.arguments else ()
        kernels.append(SeriesKernel(replace(source, comment=comment), reads, (*writes, *flag)))
    buffers = computation.buffers
    written = {name for one in kernels for name in one.writes}
    for name in computation.results:
        if name not in written:
            assert not buffers[name].count, name
            source = KernelSource("nothing", _NOTHING, (name,), (0, 1, 1), (1, 1, 1), comment=comment)
            kernels.append(SeriesKernel(source, (), (name,)))
    temporaries = {}
    for name in computation.temporaries:
        shape = [dim for dim in buffers[name].shape if isinstance(dim, int)]
        assert len(shape) == len(buffers[name].shape), "computations for GPUs have no free sizes"
        temporaries[name] = TensorType(buffers[name].dtype, tuple(shape))
    return KernelSeries(tuple(kernels), values, temporaries)


def traffic(
    op: str, attrs: Attrs, operands: Sequence[TensorType | None], results: Sequence[TensorType | None]
) -> tuple[int, int] | None:
    """The number of kernels of a comprehension, and the bytes that they read and write; None where it has none.

    A kernel reads no more of a buffer than its statements name elements, so that a look-up costs what it looks up.
    """
    types = {f"x{n}": one for n, one in enumerate(operands) if one is not None}
    made = {f"y{n}": one for n, one in enumerate(results) if one is not None}
    if not all(one.is_static for one in (*types.values(), *made.values())):
        return None
    inputs = tuple(None if one is None else f"x{n}" for n, one in enumerate(operands))
    node = Node(op, inputs, tuple(made), attrs)
    views = {name: View.of(name, one.dtype, one.static) for name, one in (types | made).items()}
    read_views, written_views = ({name: views[name] for name in some} for some in (types, made))
    kernels = FunctionKernels()
    series = kernels(Group((node,), types | made, read_views, written_views))
    if not isinstance(series, KernelSeries):
        return None
    (computation,) = kernels.computations.values()
    read = dict.fromkeys(computation.buffers, 0)
    for statement in computation.statements:
        for one in reads(statement.value):
            read[one.buffer] += statement.points * computation.buffers[one.buffer].dtype.itemsize
    launched = [one for one in series.kernels if 0 not in one.source.grid]
    total = 0
    for kernel in launched:
        total += sum(min(computation.buffers[name].nbytes, read[name]) for name in kernel.reads)
        total += sum(computation.buffers[name].nbytes for name in kernel.writes if name != FAILED)
    return len(launched), total


class FunctionKernels:
    """The maker of the kernels of groups: by templates, or of comprehensions and operators without one by statements.

    `choose` names the mapping of a computation, by its signature; `computations` are those made so far.
    """

    def __init__(self, choose: MappingChoice = lambda signature: None) -> None:
        self._choose = choose
        self.computations: dict[str, Computation] = {}

    def __call__(self, group: Group) -> KernelSource | KernelSeries | None:
        """The kernels of a group; None where there are none for all of its operators together."""
        if all(node.op not in LOWERED and function_of(node.op) is None for node in group.nodes):
            return generate(group)
        try:
            # What is made of constants once in C is made in each run here.
            lowered = lowered_group(replace(group, constants={}))
            assert not lowered.preparations
            computation = with_free_rounds(lowered.computation)
            names = (*computation.operands, *computation.results)
            signature = signature_of(computation)
            mapping = self._choose(signature) or MAPPINGS[0]
            values = dict(zip(names, lowered.passed, strict=True))
            series = kernel_series(computation, mapping, values, group.label)
        except UnsupportedError:
            return None
        self.computations[signature] = computation
        return series


def signature_of(computation: Computation) -> str:
    """A short hash of what a computation does, and of the strides of its operands; UnsupportedError if it has no form.

    Those of equal signatures may share a mapping.
    """
    naive = (cuda_kernel(computation, tree, 0).code for tree in gpu_scheduled(computation, GpuMapping.naive()))
    return hashlib.blake2b("".join(naive).encode(), digest_size=8).hexdigest()


def mapping_choice(plans: Iterable[str]) -> MappingChoice:
    """A function from a computation's signature to its mapping, by the plans that a table keeps.

    >>> chosen = mapping_choice(['00ff by mapping {"threads":64}', '00fe by mapping {"gone":1}', "00fd by cublaslt 1"])
    >>> chosen("00ff") == GpuMapping(threads=64), chosen("00fe"), chosen("00fd")
    (True, None, None)
    """
    known = {}
    for text in plans:
        signature, by, options = text.partition(_BY_MAPPING)
        if by:
            try:
                known[signature] = GpuMapping.of(json.loads(options))
            except (UsageError, ValueError):
                continue  # options of another version of eqsat
    return known.get


def is_mapping(plan: str) -> bool:
    """True of a plan that names a mapping, and no kernel of a library."""
    return _BY_MAPPING in plan


def mapping_plans(computations: Mapping[str, Computation]) -> tuple[str, ...]:
    """The mappings of a single computation that a search begins with, as a table keeps them; none of several."""
    if len(computations) != 1:
        return ()
    ((signature, computation),) = computations.items()
    first = distinct(MAPPINGS, lambda mapping: _kernels_of(computation, mapping))
    return tuple(_plan_text(signature, mapping) for mapping in first)


class PlanSearch:
    """A search for the fastest mapping of a computation, whose mappings are plans as a table keeps them.

    It ends with its generations, or when the seconds of its configuration are over.
    """

    def __init__(self, computations: Mapping[str, Computation], config: TunerConfig, kind: SearchKind) -> None:
        ((self._signature, computation),) = computations.items()
        self._search = MappingSearch(computation, lambda mapping: _kernels_of(computation, mapping), config, kind)
        self._end = time.monotonic() + config.seconds
        self._proposed: dict[str, GpuMapping] = {}

    def first(self) -> tuple[str, ...]:
        """The first generation."""
        return self._next()

    def further(self, times: Mapping[str, float]) -> tuple[str, ...]:
        """The next generation, for the seconds of all plans that ran so far; empty when the search is over."""
        self._search.tell({mapping: times[plan] for plan, mapping in self._proposed.items() if plan in times})
        return self._next() if time.monotonic() < self._end else ()

    def _next(self) -> tuple[str, ...]:
        self._proposed = {_plan_text(self._signature, mapping): mapping for mapping in self._search.propose()}
        return tuple(self._proposed)


def _kernels_of(computation: Computation, mapping: GpuMapping) -> Hashable:
    """The kernels of a mapping, equal where these are; None where there are none."""
    try:
        series = kernel_series(computation, mapping, {})
    except UnsupportedError:
        return None
    return tuple((one.source.code, one.source.grid, one.source.block) for one in series.kernels)


def _plan_text(signature: str, mapping: GpuMapping) -> str:
    options = json.dumps(mapping.to_dict(), sort_keys=True, separators=(",", ":"))
    return f"{signature}{_BY_MAPPING}{options}"
