"""Trees of loops: what a schedule makes of a computation, and text is printed from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords
from eqsat.runtime.kernels.expressions.expression import Expr
from eqsat.runtime.kernels.nests.computation import ElementRead, Environment, GroupElement, KernelBuffer, Reduction
from eqsat.runtime.kernels.nests.extents import Extent, product_at
from eqsat.runtime.kernels.nests.options import Blas

#: Reductions to an element and its place: the greatest or the least; of equal ones the first, or the last.
PlaceReduction: TypeAlias = Literal["argmax", "argmin", "last argmax", "last argmin"]


@dataclass(frozen=True)
class Loop:
    """A body for each value of a variable from 0 on; unrolled loops are written out.

    Rounds of loops that are not reduced do not depend on each other.
    """

    variable: str
    extent: Extent
    body: tuple[Node, ...]
    kind: Literal["serial", "unrolled", "parallel"] = "serial"
    unroll: int = 1
    is_reduced: bool = False


@dataclass(frozen=True)
class Vector:
    """Assignments for the elements side by side along a variable, at most `lanes`: those from `first` to `limit`."""

    variable: str
    lanes: int
    first: AffineIndex
    limit: Extent
    body: tuple[Assign, ...]


@dataclass(frozen=True)
class Local:
    """A buffer that lives in the block: an array, or with `is_register` one variable for each element.

    One of several `lanes` holds a vector in each. A GPU's threads of one block share an array that `is_shared`. A
    register of a GPU may begin with a `value`, and an array with 0; a register that `has_place` holds the place of its
    element in a row beside it, -1 before there is any.
    """

    buffer: KernelBuffer
    is_register: bool = False
    lanes: int = 1
    is_shared: bool = False
    value: Expr | None = None
    has_place: bool = False


@dataclass(frozen=True)
class Assign:
    """target = value, or with a reduction target = target op value; indices are those of an environment."""

    target: ElementRead
    value: Expr
    reduction: str = ""
    environment: Environment = field(default_factory=dict)


@dataclass(frozen=True)
class LaneFold:
    """target = the reduction of the lanes of a register, with what the target holds unless it is fresh."""

    target: ElementRead
    source: ElementRead
    reduction: str
    environment: Environment = field(default_factory=dict)


@dataclass(frozen=True)
class Prefetch:
    """A hint that the memory so many bytes behind an element is read soon; nothing depends on it."""

    element: ElementRead
    distance: int
    environment: Environment = field(default_factory=dict)


@dataclass(frozen=True)
class Gemm:
    """target = first × second by BLAS, added to what the target holds if it is updated.

    The matrices begin at the elements given. `sizes` are those of rows, columns and what is summed over; `steps` the
    elements from one row to the next, or from one column to the next of an operand that is transposed. Threads share
    the rows or the columns, whichever are more.
    """

    matrices: tuple[ElementRead, ElementRead, ElementRead]
    transposed: tuple[bool, bool]
    sizes: tuple[Extent, Extent, Extent]
    steps: tuple[int, int, int]
    is_updated: bool
    environment: Environment = field(default_factory=dict)
    threads: int = 1
    library: Blas = "scipy"


@dataclass(frozen=True)
class Gemv:
    """target = matrix × vector by BLAS, added to what the target holds if it is updated.

    The matrix, the vector and the target begin at the elements given. `sizes` are those of rows and what is summed
    over; `steps` the elements from one row to the next, or from one column to the next of a matrix that is transposed,
    and between neighbours of the vector and the target. Threads share the rows.
    """

    matrices: tuple[ElementRead, ElementRead, ElementRead]
    is_transposed: bool
    sizes: tuple[Extent, Extent]
    steps: tuple[int, int, int]
    is_updated: bool
    environment: Environment = field(default_factory=dict)
    threads: int = 1
    library: Blas = "scipy"


@dataclass(frozen=True)
class Named:
    """A variable for a sum of indices, in the rest of the block."""

    variable: str
    value: AffineIndex


@dataclass(frozen=True)
class PointCount:
    """A variable for the number of points of a box, in the rest of the block."""

    variable: str
    extents: tuple[Extent, ...]


@dataclass(frozen=True)
class IndexSplit:
    """Variables for the indices at a place of a box, counted row after row, in the rest of the block.

    Sizes of a call decide the extents: where all are numbers, indices are sums.
    """

    variables: tuple[str, ...]
    extents: tuple[Extent, ...]
    place: AffineIndex


@dataclass(frozen=True)
class Guard:
    """A body for rounds, or threads of a GPU, whose sums of indices are all below their bounds; no barrier is inside.

    The sums in `least` are no less than theirs.
    """

    below: tuple[tuple[AffineIndex, Extent], ...]
    body: tuple[Node, ...]
    least: tuple[tuple[AffineIndex, int], ...] = ()


@dataclass(frozen=True)
class ThreadLoop:
    """A body for the values of a variable that a thread of a GPU takes: from its first on, in steps."""

    variable: str
    first: AffineIndex
    limit: int
    step: int
    body: tuple[Node, ...]
    kind: Literal["serial", "unrolled"] = "unrolled"


@dataclass(frozen=True)
class PackedLoop:
    """A body, written out, for so many elements of a group side by side along a variable.

    Operands that follow each other in memory are read before it and results are stored after it, several in one access.
    """

    variable: str
    lanes: int
    body: tuple[Node, ...]


@dataclass(frozen=True)
class Promoted:
    """An element that is read from its copy, in the rest of the block."""

    element: ElementRead
    copy: ElementRead


@dataclass(frozen=True)
class Barrier:
    """The place where the threads of a block of a GPU wait for each other."""


@dataclass(frozen=True)
class ThreadFold:
    """target = the reduction of a register of several threads, each of which gets it.

    They are neighbouring lanes of a warp, a block, or those of one column of a block. The target is the register
    itself, or a name for the value in the rest of the block.
    """

    target: ElementRead
    source: ElementRead
    reduction: Reduction | PlaceReduction
    threads: int
    among: Literal["lanes", "block", "columns"] = "block"


@dataclass(frozen=True)
class LaneScan:
    """target = a carry + the sum of the sources of the lanes of a warp up to this one, a name in the block."""

    target: ElementRead
    source: ElementRead
    carry: ElementRead
    lanes: int


@dataclass(frozen=True)
class LaneShift:
    """target = the source of the lane of a warp before, or `first` for the first lane, a name in the block."""

    target: ElementRead
    source: ElementRead
    first: ElementRead
    lanes: int


@dataclass(frozen=True)
class LastLane:
    """target = the source of the last lane of a warp."""

    target: ElementRead
    source: ElementRead
    lanes: int


@dataclass(frozen=True)
class PlacedAssign:
    """target = of what a register that `has_place` holds, and a value and its place, those that come first."""

    target: ElementRead
    value: Expr
    place: AffineIndex
    reduction: PlaceReduction


@dataclass(frozen=True)
class Let:
    """A name for a value, in the rest of the block."""

    variable: str
    value: Expr


@dataclass(frozen=True)
class ComputedIndex:
    """A variable of indices for an integer that is computed, in the rest of the block."""

    variable: str
    value: Expr


@dataclass(frozen=True)
class InlinedValue:
    """A value of a group whose elements are made where they are read: by statements, and an expression after them."""

    name: str
    make: Callable[[Coords], tuple[tuple[Node, ...], Expr]]


@dataclass(frozen=True)
class Produced:
    """An element of a value of a group that an expression makes, in the rest of the block."""

    element: GroupElement
    value: Expr


#: Nodes of kernels of a GPU alone.
GpuNode: TypeAlias = "Named | PointCount | IndexSplit | ThreadLoop | Promoted | Barrier | ThreadFold"
#: Nodes of kernels of groups on a GPU alone.
GroupNode: TypeAlias = (
    "PackedLoop | LaneScan | LaneShift | LastLane | PlacedAssign | Let | ComputedIndex | InlinedValue | Produced"
)
Node: TypeAlias = "Loop | Guard | Vector | Local | Assign | LaneFold | Prefetch | Gemm | Gemv | GpuNode | GroupNode"


@dataclass(frozen=True)
class BlockCount:
    """The number of blocks of a launch that sizes of a call decide: a product of factors.

    Each is the number of points of a box, by so many together, rounded up.
    """

    factors: tuple[tuple[tuple[Extent, ...], int], ...]

    def at(self, sizes: Mapping[str, int]) -> int:
        """The number for sizes by their names in the kernel."""
        total = 1
        for extents, together in self.factors:
            total *= -(-product_at(extents, sizes) // together)
        return total


@dataclass(frozen=True)
class GpuKernel:
    """The tree of one kernel, the number of its blocks, and the columns and rows of threads in each.

    Its `purpose` is said at the beginning of its text. One that `is_cached` reads arrays that it never writes through
    the cache for these.
    """

    body: tuple[Node, ...]
    blocks: int | BlockCount = 1
    threads: tuple[int, int] = (1, 1)
    purpose: str = ""
    is_cached: bool = False
