"""Options of how a computation is mapped to the blocks and threads of a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from eqsat.errors import UsageError
from eqsat.runtime.kernels.nests.options import (
    MOST_UNROLLED,
    Fusion,
    changed,
    check_counts,
    clusters_of,
    options_of,
)

#: The most threads of a block, and the most bytes of arrays that they share, on every GPU.
MOST_THREADS, MOST_SHARED = 1024, 48 * 1024
#: The most points of a box; with the threads beyond the last one, an int still counts them.
MOST_POINTS = 2**31 - 2**20
#: The largest size that a launch gives a kernel, and the longest extent that follows: an int holds sums of a few.
MOST_FREE = 2**29
#: What has to be true of operands that are read again before they are copied to shared memory.
Promote = Literal["uncoalesced", "reused"]
_COUNTS = (
    "threads", "block_rows", "block_columns", "thread_rows", "thread_columns", "reduced_tile", "unroll",
    "reduction_threads", "long_reduction", "few_elements",
)  # fmt: skip


@dataclass(frozen=True)
class GpuMapping:
    """The mapping of a computation to kernels; every choice computes the same, but for the order of sums.

    `is_naive` is one thread with one loop per index, as a person would write it. Otherwise blocks of `threads` threads
    compute an element each. Sums of products have blocks of `block_rows` times `block_columns` threads with
    `thread_rows` times `thread_columns` elements each; with `promote`, operands that these read again are copied to
    shared memory, `reduced_tile` values of the reduced indices at a time, as long as they fit `shared_bytes` bytes.
    Other statements have such blocks, of an element for each thread, where some operand that is read again lies apart
    for neighbouring threads, or at subscripts that are computed. With "uncoalesced", those operands alone are copied
    of which neighbouring threads read anything but neighbours, in products too; with "reused", all that are read again.
    A block of at most `reduction_threads` threads, a power of two, reduces an element of statements that reduce
    `long_reduction` values or more for up to `few_elements` elements. `unroll` rounds of the innermost reduced loop are
    written out, and with `unroll_copies` all rounds of the loops that copy to shared memory. With `read_only_cache`,
    elements of arrays that a kernel never writes are read by `__ldg`; without it, the compiler finds out that they
    may be. `fusion` and `clusters` say which statements share kernels, as they do for loops of C. UsageError for values
    outside these bounds.
    """

    threads: int = 256
    block_rows: int = 16
    block_columns: int = 16
    thread_rows: int = 4
    thread_columns: int = 4
    reduced_tile: int = 16
    promote: bool | Promote = True
    shared_bytes: int = MOST_SHARED
    unroll: int = 4
    unroll_copies: bool = False
    read_only_cache: bool = False
    reduction_threads: int = 256
    long_reduction: int = 128
    few_elements: int = 4096
    fusion: Fusion = "max"
    clusters: tuple[tuple[str, ...], ...] = ()
    is_naive: bool = False

    def __post_init__(self) -> None:
        check_counts(self, _COUNTS)
        object.__setattr__(self, "clusters", clusters_of(self.clusters))
        for name in ("unroll_copies", "read_only_cache", "is_naive"):
            if not isinstance(getattr(self, name), bool):
                raise _refused(f"{name} = {getattr(self, name)!r}", "True or False")
        if not isinstance(self.promote, bool) and self.promote not in get_args(Promote):
            raise _refused(f"promote = {self.promote!r}", ", ".join(["True", "False", *get_args(Promote)]))
        for threads in (self.threads, self.block_rows * self.block_columns, self.reduction_threads):
            if threads > MOST_THREADS:
                raise _refused(f"a block of {threads} threads", f"at most {MOST_THREADS}")
        if self.reduction_threads < 32 or self.reduction_threads & (self.reduction_threads - 1):
            raise _refused(f"reduction_threads = {self.reduction_threads}", "a power of two from 32 on")
        shared = self.shared_bytes
        if not isinstance(shared, int) or isinstance(shared, bool) or not 0 <= shared <= MOST_SHARED:
            raise _refused(f"shared_bytes = {shared!r}", f"0 to {MOST_SHARED}")
        if self.thread_rows * self.thread_columns * self.unroll > MOST_UNROLLED:
            raise _refused(
                f"{self.thread_rows} rows of {self.thread_columns} elements, unrolled {self.unroll} times",
                f"at most {MOST_UNROLLED} copies of a statement",
            )
        if self.fusion not in get_args(Fusion):
            raise _refused(f"fusion = {self.fusion!r}", ", ".join(get_args(Fusion)))

    @classmethod
    def naive(cls) -> GpuMapping:
        """One thread, with one loop per index."""
        return cls(is_naive=True, fusion="min")

    @staticmethod
    def of(given: GpuMapping | Mapping[str, Any] | str) -> GpuMapping:
        """Options from their names and values, or "naive" or "default"; UsageError for others.

        >>> GpuMapping.of({"threads": 64}).threads, GpuMapping.of("naive").is_naive
        (64, True)
        """
        return options_of(GpuMapping, given)

    def to_dict(self) -> dict[str, Any]:
        """The options that are not as by default, by name: what `of` takes."""
        return changed(self)


def _refused(fault: str, expected: str) -> UsageError:
    return UsageError(fault, where="mapping options", expected=expected)
