"""Constants whose bytes are the same in memory, whatever their shapes: one block for all of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from eqsat.language.terms.constant import Array, Constant, narrowed
from eqsat.language.terms.types import DType
from eqsat.runtime.kernels.view import View

#: Elements that tell most blocks of one size apart.
_SAMPLE = 32


@dataclass
class _StoredConstant:
    """A constant in memory: the whole buffer that the view shows, in the order in which it is stored."""

    constant: Constant
    view: View

    def __post_init__(self) -> None:
        self._digest: bytes | None = None

    def ordered(self) -> Array:
        """The elements as they are stored, in the element type of the constant itself."""
        order = sorted(range(self.view.rank), key=lambda axis: (-self.view.strides[axis], axis))
        return np.transpose(self.constant.array.reshape(self.view.shape), order)

    def sample(self) -> bytes:
        """A few of the stored elements, from the first to the last."""
        ordered = self.ordered()
        places = np.unique(np.linspace(0, ordered.size - 1, _SAMPLE).astype(np.int64))
        return self._bytes(ordered.flat[places])

    def stored(self) -> bytes:
        """All of the bytes."""
        return self._bytes(self.ordered())

    @property
    def digest(self) -> bytes:
        """A hash of all of the bytes."""
        if self._digest is None:
            self._digest = hashlib.blake2b(self.stored(), digest_size=16).digest()
        return self._digest

    def _bytes(self, elements: Array) -> bytes:
        return np.ascontiguousarray(narrowed(elements, self.view.dtype)).tobytes()


class Blocks:
    """The constants that are in memory so far. Memory that a caller may write to is an input, and never among them."""

    def __init__(self) -> None:
        self._known: dict[tuple[DType, int, bytes], list[_StoredConstant]] = {}

    def shared(self, constant: Constant, view: View) -> View | None:
        """A view of a constant that is stored already as `view` asks; None if there is none, and `view` is then stored.

        Compared by element type and size, then by a sample of the bytes, by a hash of them, and by all of them: 0.0 is
        not -0.0, and NaN is NaN where its bits are the same.
        """
        if not view.count:
            return None
        block = _StoredConstant(constant, view)
        alike = self._known.setdefault((view.dtype, view.nbytes, block.sample()), [])
        for other in alike:
            if other.digest == block.digest and other.stored() == block.stored():
                return replace(view, buffer=other.view.buffer)
        alike.append(block)
        return None
