"""Domains: the typed inputs that the generator builds terms over."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from eqsat.errors import UsageError
from eqsat.language.types import DType, TensorType

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Domain:
    """Variables of a few shapes, each shape with how many there are of it.

    `without` names operators that are not tried here unless they are asked for.

    Terms are evaluated on `samples` draws of the variables at once, so many that a maximum or relu of a small tensor is
    not one of its operands by chance.
    """

    name: str
    inputs: tuple[tuple[Shape, int], ...]
    without: tuple[str, ...] = ()
    samples: int = 8

    def variables(self) -> list[TensorType]:
        """The type of each variable, in order."""
        return [TensorType(DType.FLOAT32, shape) for shape, count in self.inputs for _ in range(count)]


# Sides are equal where operators need it and the sizes of different roles differ where they do not, so that few terms
# agree by accident of shape; what holds at these shapes alone is the generaliser's to find out. Every operator that
# takes part by default does so in some domain, and is left out of those where it would say the same again.
_WINDOWED = ("conv", "max_pool", "avg_pool", "global_avg_pool")
_NORMS = ("layer_norm", "rms_norm", "batch_norm")
_KERNELS = ("identity_kernel", "pool_kernel")
_CONSTANTS = (*_KERNELS, "eye", "fill")
_NOT_OF_IMAGES = (
    "exp",
    "tanh",
    "sigmoid",
    "neg",
    "sub",
    "fill",
    "reshape",
    "expand",
    "softmax",
    "reduce_mean",
    "matmul",
)
_KNOWN = (
    Domain("matrices", (((3, 3), 4),), ("exp", "sigmoid", *_NORMS, *_KERNELS)),
    Domain(
        "vectors",
        (((3, 3), 2), ((3,), 2), ((3, 1), 1), ((), 2)),
        ("tanh", "sigmoid", "neg", *_NORMS, *_CONSTANTS),
        samples=16,
    ),
    Domain(
        "batches",
        (((2, 3, 3), 3),),
        ("tanh", "exp", "neg", "sub", *_NORMS, *_WINDOWED, *_CONSTANTS),
        samples=4,
    ),
    Domain(
        "images",
        (((1, 3, 4, 4), 2), ((3, 3, 3, 3), 2), ((3, 3, 1, 1), 1), ((3, 1, 3, 3), 1)),
        (*_NOT_OF_IMAGES, "reduce_max", *_NORMS),
        samples=4,
    ),
    Domain(
        "normalised",
        (((2, 3, 3), 2), ((3,), 4)),
        ("tanh", "exp", "sigmoid", "neg", "sub", "matmul", *_WINDOWED, *_CONSTANTS),
    ),
)
#: The domains there are, by name.
DOMAINS: Mapping[str, Domain] = MappingProxyType({d.name: d for d in _KNOWN})

_CUSTOM = re.compile(r"(scalar|\d+(?:x\d+)*)(?:\*(\d+))?$")


def domain(text: str) -> Domain:
    """A domain by its name, or by its inputs: shapes with how many there are of each.

    >>> domain("3x4*2+scalar").inputs
    (((3, 4), 2), ((), 1))
    """
    if text in DOMAINS:
        return DOMAINS[text]
    inputs: list[tuple[Shape, int]] = []
    for item in text.split("+"):
        found = _CUSTOM.match(item.strip())
        count = int(found[2] or 1) if found is not None else 0
        if found is None or count < 1:
            raise UsageError(
                f"no domain {text!r}",
                expected="one of " + ", ".join(DOMAINS) + ", or inputs such as 3x3*4+scalar*2",
                remedy="name a domain, or give shapes and how many variables there are of each",
            )
        shape = () if found[1] == "scalar" else tuple(int(d) for d in found[1].split("x"))
        inputs.append((shape, count))
    return Domain(text, tuple(inputs))
