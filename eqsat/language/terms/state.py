"""The form in which memory holds a tensor: the order of its elements, and their type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from eqsat.errors import UsageError, nearest
from eqsat.language.terms.blocks import PACKINGS
from eqsat.language.terms.types import DType, Shape, TensorType

#: Float32 held in floats of 8 bits by a scale: 4 bits of exponent, 3 of mantissa.
FLOAT8 = "float8"
#: The types of a byte that values of float32 may be held in by a scale.
QUANTISED = ("uint8", "int8", FLOAT8)
#: The element types that precisions are stored in, where these have another name.
_STORED = {FLOAT8: DType.FLOAT8E4M3FN} | {name: DType.of(one.kind) for name, one in PACKINGS.items()}
#: Channels in one block of the layout "blocked": those of a vector register of 512 bits in float32.
BLOCK = 16


@dataclass(frozen=True, slots=True)
class Layout:
    """An order of the elements of a tensor.

    `ranks` are the least and most axes it is defined for; `constants` is True for one that only constants are put in,
    since nothing but the kernel it is made for can read it.
    """

    name: str
    doc: str
    ranks: tuple[int, int]
    constants: bool = False

    def fits(self, type: TensorType) -> bool:
        """True if a tensor of this type can be held so, and differently from the row-major order.

        >>> LAYOUTS["blocked"].fits(TensorType.of("float32", (1, 64, 7, 7)))
        True
        >>> LAYOUTS["blocked"].fits(TensorType.of("float32", (1, 3, 7, 7)))
        False
        """
        if type.shape is None or not self.ranks[0] <= type.rank <= self.ranks[1]:
            return False
        if self.name == "blocked":
            channels = type.dims[1]
            return isinstance(channels, int) and channels % BLOCK == 0 and channels > 0
        return True

    def order(self, rank: int) -> tuple[int, ...] | None:
        """The logical axes in the order they are stored; None where storage is not a permutation of axes.

        >>> LAYOUTS["column"].order(3), LAYOUTS["nhwc"].order(4)
        ((0, 2, 1), (0, 2, 3, 1))
        """
        axes = tuple(range(rank))
        if self.name == "row":
            return axes
        if self.name == "column":
            return (*axes[:-2], axes[-1], axes[-2])
        if self.name == "nhwc":
            return (axes[0], *axes[2:], axes[1])
        return None


_LAYOUTS = (
    Layout("row", "The last axis is contiguous: row-major matrices, images as NCHW.", (0, 64)),
    Layout("column", "The last but one axis is contiguous: column-major matrices.", (2, 64)),
    Layout("nhwc", "The channels, axis 1, are contiguous.", (3, 5)),
    Layout("blocked", f"Channels in contiguous blocks of {BLOCK}: NCHW{BLOCK}c.", (4, 4)),
    Layout("packed", "Weights in the order a kernel reads them.", (2, 5), constants=True),
)

#: Every layout by name; "row" is that of graphs, inputs and outputs.
LAYOUTS: Mapping[str, Layout] = MappingProxyType({layout.name: layout for layout in _LAYOUTS})


@dataclass(frozen=True, slots=True, order=True)
class State:
    """A layout and an element type; `precision` is empty for the element type that the graph states.

    >>> str(State("column", "float16")), str(State())
    ('column float16', 'row')
    """

    layout: str = "row"
    precision: str = ""

    def __str__(self) -> str:
        return f"{self.layout} {self.precision}".rstrip()

    @property
    def is_plain(self) -> bool:
        """True if this is the state of graphs: row-major, in the element type stated."""
        return self == PLAIN

    @property
    def is_quantised(self) -> bool:
        """True if numbers of a byte, or of fewer bits, stand for the elements, by a scale that belongs to the value."""
        return self.precision in QUANTISED or self.precision in PACKINGS

    def typed(self, type: TensorType) -> TensorType:
        """The type with the element type of this state."""
        dtype = _STORED.get(self.precision) or (DType.of(self.precision) if self.precision else type.dtype)
        return replace(type, dtype=dtype)


#: The state of a graph's values where nobody says otherwise, and of its inputs and outputs.
PLAIN = State()


def stored_shape(shape: Shape, layout: str) -> Shape:
    """The dims of a tensor in the order they are stored; those of a layout that is no permutation stay.

    >>> stored_shape((2, 3, 4), "column")
    (2, 4, 3)
    """
    order = LAYOUTS[layout].order(len(shape))
    return shape if order is None else tuple(shape[axis] for axis in order)


def check_layouts(layouts: tuple[str, ...]) -> None:
    """UsageError for a name that is no layout."""
    for name in layouts:
        if not isinstance(name, str) or name not in LAYOUTS:
            raise UsageError(
                f"no layout {name!r}", expected="some of " + ", ".join(LAYOUTS), remedy=nearest(name, LAYOUTS)
            )
