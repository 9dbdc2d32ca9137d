"""From a plan to the launches that compute it on a GPU: calls of libraries where they fit, generated kernels else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eqsat.language.terms import Graph, Plan
from eqsat.runtime.cuda.program.ends import LibraryEnds
from eqsat.runtime.cuda.program.functions import FunctionKernels, PlanSearch, mapping_choice, mapping_plans
from eqsat.runtime.cuda.program.products import LIBRARIES, Products
from eqsat.runtime.kernels.nests.computation import Computation
from eqsat.runtime.programs.lowering import KernelMakers, lowered_program
from eqsat.runtime.programs.program import KernelProgram
from eqsat.runtime.tuning.config import TunerConfig
from eqsat.runtime.tuning.search import SearchKind


def program_of(
    given: Plan | Graph,
    sizes: Mapping[str, int] | None = None,
    *,
    libraries: Iterable[str] = LIBRARIES,
    plans: Iterable[str] = (),
) -> KernelProgram:
    """The launches of a plan, or of a graph, at sizes of its named dims.

    `libraries` are those whose kernels may be called: "cublaslt" for matrix products, "cudnn" for convolutions and
    attention; the rest is generated, comprehensions by the mappings among the `plans` that a table has. BackendError
    for nodes that cannot run on a GPU at all.
    """
    return _lowered(given, sizes or {}, frozenset(libraries), FunctionKernels(mapping_choice(plans)))


def mappings_of(given: Plan | Graph) -> tuple[str, ...]:
    """The ways to map the one comprehension of a plan to a GPU that a search begins with, as a table keeps them.

    None where there are several.
    """
    return mapping_plans(_computations(given))


def mapping_search(given: Plan | Graph, config: TunerConfig, kind: SearchKind = "genetic") -> PlanSearch | None:
    """A search for the fastest way to map the one comprehension of a plan to a GPU; None where there are several."""
    computations = _computations(given)
    return PlanSearch(computations, config, kind) if len(computations) == 1 else None


def _computations(given: Plan | Graph) -> Mapping[str, Computation]:
    kernels = FunctionKernels()
    _lowered(given, {}, LIBRARIES, kernels)
    return kernels.computations


def _lowered(
    given: Plan | Graph, sizes: Mapping[str, int], libraries: frozenset[str], kernels: FunctionKernels
) -> KernelProgram:
    ends = LibraryEnds() if libraries else None
    return lowered_program(given, sizes, KernelMakers(kernels, lambda emitter: Products(emitter, libraries), ends))
