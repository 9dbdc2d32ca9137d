"""The space of mappings of a computation to a GPU, and the search for the fastest of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from eqsat.errors import UsageError
from eqsat.runtime.kernels.nests.computation import Computation, KernelStatement, reads
from eqsat.runtime.kernels.nests.gpu_options import GpuMapping
from eqsat.runtime.kernels.nests.scheduling.gpu_products import product_axes
from eqsat.runtime.kernels.nests.scheduling.strides import depends
from eqsat.runtime.tuning.candidate import TuningCandidate
from eqsat.runtime.tuning.config import TunerConfig
from eqsat.runtime.tuning.search import SearchKind, search_of
from eqsat.runtime.tuning.space import OptionSpace

#: Mappings that a search begins with; the first is taken where nothing was measured. Products have larger tiles, which
#: read less, or smaller ones, of which there are more; long reductions have blocks, warps or threads of their own.
MAPPINGS = (
    GpuMapping(),
    GpuMapping(thread_rows=2, thread_columns=2),
    GpuMapping(thread_rows=8, reduced_tile=8),
    GpuMapping(promote=False),
    GpuMapping(threads=128, reduction_threads=128),
    GpuMapping(threads=64, reduction_threads=32, long_reduction=64),
    GpuMapping(few_elements=1, long_reduction=1 << 20),
    GpuMapping(fusion="min"),
    GpuMapping(unroll_copies=True),
    GpuMapping(read_only_cache=True),
    GpuMapping(promote="uncoalesced"),
    GpuMapping(promote="reused"),
)
#: The values that a search tries of options that products, reductions and all kernels have.
_PRODUCTS: Mapping[str, tuple[Any, ...]] = {
    "block_rows": (16, 4, 8, 32),
    "block_columns": (16, 8, 32),
    "thread_rows": (4, 1, 2, 8),
    "thread_columns": (4, 1, 2, 8),
    "reduced_tile": (16, 4, 8, 32),
}
_REDUCTIONS: Mapping[str, tuple[Any, ...]] = {
    "unroll": (4, 1, 2, 8, 16),
    "reduction_threads": (256, 32, 64, 128, 512),
    "long_reduction": (128, 32, 64, 512, 1 << 20),
    "few_elements": (4096, 1, 256, 1 << 20),
}
_ALL: Mapping[str, tuple[Any, ...]] = {"threads": (256, 32, 64, 128, 512, 1024), "read_only_cache": (False, True)}
#: The same of operands that are read again, which may be copied to shared memory.
_COPIES: Mapping[str, tuple[Any, ...]] = {
    "promote": (True, False, "uncoalesced", "reused"),
    "unroll_copies": (False, True),
}
#: Elements of a product that a thread holds in registers, at most, and the fewest threads of a block.
_MOST_HELD, _FEWEST_THREADS = 32, 32


def mapping_space(computation: Computation) -> OptionSpace:
    """The mappings of a computation that are searched, without options that change nothing."""
    statements = computation.statements
    options: dict[str, tuple[Any, ...]] = dict(_ALL)
    if any(product_axes(one, computation.buffers) for one in statements):
        options |= _PRODUCTS
    if any(_reads_again(one) for one in statements):
        options |= _COPIES
    if any(one.reduced for one in statements):
        options |= _REDUCTIONS
    if len(statements) > 1:
        options["fusion"] = ("max", "min", "preserve3")

    def is_legal(candidate: TuningCandidate) -> bool:
        try:
            mapping = GpuMapping.of(dict(candidate))
        except UsageError:
            return False
        threads = mapping.block_rows * mapping.block_columns
        return mapping.thread_rows * mapping.thread_columns <= _MOST_HELD and threads >= _FEWEST_THREADS

    return OptionSpace(options, is_legal)


def _reads_again(statement: KernelStatement) -> bool:
    """True if some element is read at several indices of a statement, or may be."""
    found = reads(statement.value)
    if len({read.buffer for read in found}) < len(found):
        return True
    return any(not depends(read, axis.name) for read in found for axis in statement.axes)


def candidate_of(space: OptionSpace, mapping: GpuMapping) -> TuningCandidate | None:
    """A mapping as a candidate of a space; None where it is none of it."""
    plain = GpuMapping()
    if any(getattr(mapping, name) != getattr(plain, name) for name in mapping.to_dict() if name not in space.options):
        return None
    candidate = TuningCandidate({name: getattr(mapping, name) for name in space.options})
    return candidate if space.allows(candidate) else None


class MappingSearch:
    """A search for the fastest mapping of a computation: proposed in generations, told the times of those before.

    The first generation begins with MAPPINGS. `kernels` tells mappings apart: of those that lead to the same kernels
    the first is proposed alone, and None is what has no kernels.
    """

    def __init__(
        self,
        computation: Computation,
        kernels: Callable[[GpuMapping], Hashable],
        config: TunerConfig,
        kind: SearchKind = "genetic",
    ) -> None:
        space = mapping_space(computation)
        start = [one for one in (candidate_of(space, mapping) for mapping in MAPPINGS) if one is not None]
        self._search = search_of(kind, space, config, start)
        self._kernels = kernels
        self._known: dict[Hashable, TuningCandidate] = {}
        self._proposed: dict[TuningCandidate, GpuMapping] = {}
        #: The candidates of one generation that lead to the kernels of another.
        self._same: dict[TuningCandidate, TuningCandidate] = {}
        self._times: dict[TuningCandidate, float] = {}

    def propose(self) -> list[GpuMapping]:
        """The next generation; empty when the search is over."""
        while True:
            batch = self._search.propose()
            if not batch:
                return []
            self._proposed, self._same = {}, {}
            for candidate in batch:
                mapping = GpuMapping.of(dict(candidate))
                made = self._kernels(mapping)
                if made is None:
                    self._search.tell(candidate, None)
                elif made in self._known:
                    self._same[candidate] = self._known[made]
                else:
                    self._known[made] = candidate
                    self._proposed[candidate] = mapping
            if self._proposed:
                return list(self._proposed.values())
            self.tell({})

    def tell(self, times: Mapping[GpuMapping, float]) -> None:
        """Take in the seconds of mappings that were proposed; those without are invalid."""
        for candidate, mapping in self._proposed.items():
            if mapping in times:
                self._times[candidate] = times[mapping]
            self._search.tell(candidate, times.get(mapping))
        for candidate, other in self._same.items():
            self._search.tell(candidate, self._times.get(other))


def distinct(mappings: Iterable[GpuMapping], kernels: Callable[[GpuMapping], Hashable]) -> Sequence[GpuMapping]:
    """The mappings that lead to different kernels, those that have none left out."""
    made: dict[Hashable, GpuMapping] = {}
    for mapping in mappings:
        found = kernels(mapping)
        if found is not None:
            made.setdefault(found, mapping)
    return list(made.values())
