"""The operators that one kernel computes, as the code generator sees them, and where their values lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eqsat.language.terms import Constant, Node, TensorType
from eqsat.runtime.kernels.view import View


@dataclass(frozen=True)
class Group:
    """Operators in the order they are computed, to be run as one kernel; every shape and attribute is a number.

    `types` are those of every value read or made, as the graph states them; a view has the shape of its type, and its
    strides and element type say how it is held (a float32 value may be held as float16, an image with its channels
    last). `operands` are read from memory, `results` are written there; other values stay within the kernel.
    `constants` are operands whose elements are known, in whatever way they are held: small ones may go into the source.
    """

    nodes: tuple[Node, ...]
    types: Mapping[str, TensorType]
    operands: Mapping[str, View]
    results: Mapping[str, View]
    constants: Mapping[str, Constant] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The operators, as a person names them."""
        return " + ".join(node.op for node in self.nodes)
