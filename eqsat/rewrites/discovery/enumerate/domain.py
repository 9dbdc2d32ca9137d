"""Domains: the typed inputs that the generator builds terms over."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from eqsat.errors import UsageError
from eqsat.language.declaration.indices import IndexForm
from eqsat.language.ops import OPS
from eqsat.language.terms.types import DType, TensorType

Shape = tuple[int, ...]
#: The operand of a windowed operator, and the weights of the window.
IMAGE, FILTER = "image", "filter"


@dataclass(frozen=True, slots=True)
class RoledType(TensorType):
    """The type of a tensor that is an image or a filter: the two do not mix, though their shapes may be the same."""

    role: str


@dataclass(frozen=True, slots=True)
class Domain:
    """Variables of a few shapes, each shape with how many there are of it.

    `without` names operators that are not tried here unless they are asked for. `roles` tells images from filters; what
    has no role here goes with either.

    Terms are evaluated on `samples` draws of the variables at once, so many that a maximum or relu of a small tensor is
    not one of its operands by chance.
    """

    name: str
    inputs: tuple[tuple[Shape, int], ...]
    without: tuple[str, ...] = ()
    samples: int = 8
    roles: tuple[tuple[Shape, str], ...] = ()

    def variables(self) -> list[TensorType]:
        """The type of each variable, in order."""
        return [self.typed(TensorType(DType.FLOAT32, shape)) for shape, count in self.inputs for _ in range(count)]

    def typed(self, plain: TensorType) -> TensorType:
        """A type of an input, with the role that its shape has here."""
        role = dict(self.roles).get(plain.static)
        return plain if role is None else RoledType(plain.dtype, plain.shape, role)


def joint_role(form: IndexForm | None, operands: Sequence[TensorType]) -> str | None:
    """The role of the result of an operator with an index form, "" for none; None where it takes no such operands.

    An operand that is read in windows is no filter, one whose axes are the offsets of windows is no image; operators
    without windows take operands of one role.
    """
    roles = [o.role if isinstance(o, RoledType) else "" for o in operands]
    if form is None or not form.windowed:
        distinct = {r for r in roles if r}
        return None if len(distinct) > 1 else next(iter(distinct), "")
    offsets = {i.window for t in form.terms for i in t.indices if i.window}
    result = ""
    for term, role in zip(form.terms, roles, strict=False):
        read, weighs = (any(i.window for i in term.indices), any(i.name in offsets for i in term.indices))
        if (read and role == FILTER) or (weighs and role == IMAGE):
            return None
        result = role if read else result
    return result


# Sides are equal where operators need it and the sizes of different roles differ where they do not, so that few terms
# agree by accident of shape; the generaliser finds out which equations hold at these shapes alone. Every operator that
# takes part by default does so in some domain, and is left out of those where it would say the same again.
_WINDOWED = tuple(name for name, one in OPS.items() if one.windowed)
_NORMS = ("layer_norm", "rms_norm", "batch_norm")
_CONSTANTS = tuple(name for name, one in OPS.items() if one.generated and not one.min_operands)
_KERNELS = tuple(name for name in _CONSTANTS if "kernel" in OPS[name].attrs)
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
        roles=(((1, 3, 4, 4), IMAGE), *((s, FILTER) for s in ((3, 3, 3, 3), (3, 3, 1, 1), (3, 1, 3, 3)))),
    ),
    Domain(
        "normalised",
        (((2, 3, 3), 2), ((3,), 4)),
        ("tanh", "exp", "sigmoid", "neg", "sub", "matmul", *_WINDOWED, *_CONSTANTS),
    ),
)
#: The domains there are, by name.
DOMAINS: Mapping[str, Domain] = MappingProxyType({d.name: d for d in _KNOWN})

_CUSTOM = re.compile(rf"(scalar|\d+(?:x\d+)*)(?::({IMAGE}|{FILTER}))?(?:\*(\d+))?$")


def domain(text: str) -> Domain:
    """A domain by its name, or by its inputs: shapes with how many there are of each, and images and filters apart.

    >>> domain("3x4*2+scalar").inputs
    (((3, 4), 2), ((), 1))
    >>> domain("1x2x4x4:image+2x2x3x3:filter*2").roles
    (((1, 2, 4, 4), 'image'), ((2, 2, 3, 3), 'filter'))
    """
    if text in DOMAINS:
        return DOMAINS[text]
    inputs: list[tuple[Shape, int]] = []
    roles: dict[Shape, str] = {}
    for item in text.split("+"):
        stated = _CUSTOM.match(item.strip())
        count = int(stated[3] or 1) if stated is not None else 0
        if stated is None or count < 1:
            raise UsageError(
                f"no domain {text!r}",
                expected="one of " + ", ".join(DOMAINS) + ", or inputs such as 3x3*4+scalar*2",
                remedy="name a domain, or give shapes and how many variables there are of each",
            )
        shape = () if stated[1] == "scalar" else tuple(int(d) for d in stated[1].split("x"))
        inputs.append((shape, count))
        if stated[2] is not None and roles.setdefault(shape, stated[2]) != stated[2]:
            raise UsageError(
                f"inputs of shape {shape} are both images and filters",
                expected="one role for each shape",
                remedy="give them other shapes",
            )
    return Domain(text, tuple(inputs), roles=tuple(roles.items()))
