"""Operators run as one kernel: which may be, the saving, and the key it is measured under."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from eqsat.costs.kernels.key import OpKey
from eqsat.costs.kernels.precision import is_product
from eqsat.errors import CostError
from eqsat.language.ops import OPS
from eqsat.language.terms import Implementation, TensorType
from eqsat.runtime.cuda.libraries.epilogues import epilogue_of, may_follow, takes_addend

#: Operators in one kernel, at most: longer chains save one more write and read each, and their number grows fast.
MOST_FUSED = 4
#: Separator of the operators of a fused kernel in its key.
FUSED = " ; "


@dataclass(frozen=True, slots=True)
class FusedOperator:
    """One operator of a fused kernel; `links` are the members that make its operands, None for one read from memory.

    `same` says which of those are the same tensor as an earlier one, counting the operands of all members in turn.
    """

    op: str
    attrs: Mapping[str, Any]
    operands: tuple[TensorType | None, ...]
    results: tuple[TensorType | None, ...]
    const: tuple[bool, ...]
    implementation: Implementation
    links: tuple[int | None, ...]
    same: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class FusedKey:
    """The key of a fused kernel: those of its operators, with `%0` for an operand that the first of them makes.

    Where `same` says so, `&0` stands before an operand that is the same tensor as the first of all.

    >>> text = "matmul {} float32[2, 8] =float32[8, 4] ; relu {} %0:float32[2, 4]"
    >>> FusedKey.parse(text).text == text
    True
    >>> FusedKey.parse("relu {} float32[2] ; add {} %0:float32[2] &0:float32[2]").same
    ((None,), (None, 0))
    """

    members: tuple[OpKey, ...]
    links: tuple[tuple[int | None, ...], ...]
    same: tuple[tuple[int | None, ...], ...] = ()

    @cached_property
    def text(self) -> str:
        """The key as one line; equal keys have equal lines."""
        same = self.same or tuple((None,) * len(links) for links in self.links)
        return FUSED.join(_linked(k.text, *at) for k, *at in zip(self.members, self.links, same, strict=True))

    @property
    def op(self) -> str:
        """The operators, as a person names them.

        >>> FusedKey.parse("matmul {} float32[2, 8] =float32[8, 4] ; relu {} %0:float32[2, 4]").op
        'matmul + relu'
        """
        return " + ".join(key.op for key in self.members)

    def first(self, place: int, index: int) -> tuple[int, int]:
        """The member and operand of it that first reads the tensor that an operand of a member is."""
        number = self.same[place][index] if self.same else None
        if number is None:
            return place, index
        for earlier, member in enumerate(self.members):
            if number < len(member.operands):
                return self.first(earlier, number)
            number -= len(member.operands)
        return place, index

    @staticmethod
    def of(key: Key) -> FusedKey:
        """The key of a kernel as a chain, which for one operator is that operator alone."""
        return key if isinstance(key, FusedKey) else FusedKey((key,), ((None,) * len(key.operands),))

    @staticmethod
    def parse(text: str) -> FusedKey:
        """The key that a line stands for; CostError for a line that is none."""
        members, links, same = [], [], []
        before = 0
        for index, part in enumerate(text.split(FUSED)):
            key = OpKey.parse(_LINK.sub(" ", part))
            members.append(key)
            links.append(_marks(part, "%", len(key.operands)))
            same.append(_marks(part, "&", len(key.operands)))
            known = [(link, index) for link in links[-1]] + [(one, before) for one in same[-1]]
            if any(mark is not None and mark >= bound for mark, bound in known):
                raise CostError(f"no key of a fused kernel: {text!r}", expected="operands of earlier members only")
            before += len(key.operands)
        if len(members) < 2:
            raise CostError(f"no key of a fused kernel: {text!r}", expected="two operators or more, parted by ' ; '")
        return FusedKey(tuple(members), tuple(links), shared(same))


def shared(same: Sequence[tuple[int | None, ...]]) -> tuple[tuple[int | None, ...], ...]:
    """The earlier operands that operands of members are the same as, as a key has it; empty where none is."""
    return tuple(same) if any(mark is not None for marks in same for mark in marks) else ()


#: The key of a kernel, over one operator or several.
Key: TypeAlias = OpKey | FusedKey


_LINK = re.compile(r" [%&](\d+):")
_MARKED = re.compile(r" (?:([%&])(\d+):)?(?==?(?:\w+\[[\d, ]*\]|-)(?:@\w+)?(?= |$))")


def _linked(text: str, links: Sequence[int | None], same: Sequence[int | None]) -> str:
    """The key of one operator, with its links and the operands equal to others written before the operands."""
    head, rest = _parted(text)
    places = iter(zip(links, same, strict=True))

    def mark(match: re.Match[str]) -> str:
        link, other = next(places, (None, None))
        return " " if link is None and other is None else f" &{other}:" if link is None else f" %{link}:"

    return head + _MARKED.sub(mark, rest)


def _marks(part: str, sign: str, count: int) -> tuple[int | None, ...]:
    """The numbers written with a sign before the operands of one operator."""
    _, rest = _parted(part)
    marks = [int(m[2]) if m[1] == sign else None for m in _MARKED.finditer(rest)]
    return tuple(marks[:count])


def _parted(text: str) -> tuple[str, str]:
    """The operator with its attributes, and the operands: attributes are JSON and end with the brace that closes."""
    depth = 0
    quoted = False
    for index, sign in enumerate(text):
        if sign == '"' and text[index - 1] != "\\":
            quoted = not quoted
        elif not quoted and sign in "{}":
            depth += 1 if sign == "{" else -1
            if depth == 0:
                return text[: index + 1], text[index + 1 :]
    raise CostError(f"no operator key: {text!r}", expected="a line such as 'relu {} float32[2, 8]'")


def fuses(producer: str, consumer: str) -> bool:
    """Return whether a consumer can be computed where its producer has just made an element, or a row of them.

    Element by element after anything that computes; a reduction, a softmax or a normalisation after pointwise
    operators.

    >>> fuses("matmul", "relu"), fuses("relu", "softmax"), fuses("matmul", "softmax"), fuses("relu", "matmul")
    (True, True, False, False)
    """
    first, then = OPS.get(producer), OPS.get(consumer)
    if first is None or then is None or first.view or then.view or first.random or then.random:
        return False
    if then.pointwise:
        return first.pointwise or is_product(producer) or _by_rows(producer)
    return _by_rows(consumer) and first.pointwise


def runs_as_one(members: Sequence[FusedOperator]) -> bool:
    """Return whether the runtime for GPUs computes operators by one kernel.

    What is element by element, with one operator along rows; or a product with what libraries compute at its end.
    """
    first = members[0]
    cores = [m for m in members if not OPS[m.op].pointwise]
    if len(cores) > 1:
        return False
    if not cores or not is_product(first.op):
        return True
    epilogues: list[str] = []
    for member in members[1:]:
        result = member.results[0]
        others = [t for t, link in zip(member.operands, member.links, strict=True) if link is None and t is not None]
        if result is None or result.shape is None or sum(link is not None for link in member.links) != 1:
            return False
        epilogue = epilogue_of(first.op, member.op, member.attrs, result, others)
        fixed = all(const for const, link in zip(member.const, member.links, strict=True) if link is None)
        if not may_follow(epilogues, epilogue) or (epilogue == "scale" and not fixed):
            return False
        if epilogue == "addend" and not _adds(first, member):
            return False
        epilogues.append(epilogue)
    return True


def _adds(product: FusedOperator, member: FusedOperator) -> bool:
    """Return whether a library adds what a member reads at the end of a convolution, in the states held."""
    way = member.implementation
    states = (product.implementation.operands[0], *way.operands, way.result)
    types = (product.operands[0], *member.operands, member.results[0])
    stored = zip(states, types, strict=True)
    images = [(state.layout, state.typed(type).dtype) for state, type in stored if type is not None]
    filters = product.operands[1]
    return filters is not None and takes_addend(product.attrs, filters, images, product.implementation.arithmetic)


def _by_rows(op: str) -> bool:
    """Reductions, softmax and normalisations: operators whose index form marks the axes they go along."""
    index = OPS[op].index
    return index.startswith(("...{ax", "n [c h...]", "n c [h...]"))
