"""The key of a measured operator: the properties that decide its time."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from eqsat.errors import CostError, EqsatError
from eqsat.language.graphs.interpret import concrete
from eqsat.language.terms import PACKINGS, Attrs, TensorType


@dataclass(frozen=True)
class OpKey:
    """An operator, its attributes, the static types of its operands, which of these are constants, and how it is run.

    Values of constants are no part of a key; operands left out are None. `layouts` are those of the operands, then that
    of the results; they are left out where all are row-major. `result` is the element type of the results where the
    operands' types do not decide it, `arithmetic` that of products where it is another than the operands'.

    >>> key = OpKey.of("matmul", {}, [TensorType.of("float32", ("n", 8)), TensorType.of("float32", (8, 4))],
    ...     [False, True], {"n": 2})
    >>> key.text
    'matmul {} float32[2, 8] =float32[8, 4]'
    >>> OpKey.parse(key.text) == key
    True
    >>> key.run(("row", "column", "row"), arithmetic="tf32").text
    'matmul {} float32[2, 8] =float32[8, 4]@column by tf32'
    """

    op: str
    attrs: Attrs
    operands: tuple[TensorType | None, ...]
    const_operands: tuple[bool, ...]
    layouts: tuple[str, ...] = ()
    result: str = ""
    arithmetic: str = ""

    @staticmethod
    def of(
        op: str,
        attrs: Mapping[str, Any],
        operands: Sequence[TensorType | None],
        const_operands: Sequence[bool],
        sizes: Mapping[str, int],
    ) -> OpKey:
        """The key of an operator when named dims have the sizes given."""
        static = tuple(None if t is None else t.at(sizes) for t in operands)
        settled = Attrs({name: concrete(value, sizes) for name, value in attrs.items()})
        return OpKey(op, settled, static, tuple(bool(c) for c in const_operands))

    def run(self, layouts: Sequence[str], result: str = "", arithmetic: str = "") -> OpKey:
        """The key of the same operator run in layouts of its operands and then its results."""
        stated = () if all(layout == "row" for layout in layouts) else tuple(layouts)
        return replace(self, layouts=stated, result=result, arithmetic=arithmetic)

    @property
    def is_measurable(self) -> bool:
        """True where every operand has a known shape."""
        return all(t is None or t.is_static for t in self.operands)

    @cached_property
    def text(self) -> str:
        """The key as one line; equal keys have equal lines."""
        attrs = json.dumps({k: _plain(v) for k, v in self.attrs.items()}, sort_keys=True, separators=(",", ":"))
        layouts = self.layouts or ("row",) * (len(self.operands) + 1)
        shown = [_show(t, c, how) for t, c, how in zip(self.operands, self.const_operands, layouts, strict=False)]
        result = f"{self.result}{_mark(layouts[-1])}"
        ends = [f"-> {result}"] * bool(result) + [f"by {self.arithmetic}"] * bool(self.arithmetic)
        return " ".join([self.op, attrs, *shown, *ends])

    @staticmethod
    def parse(text: str) -> OpKey:
        """The key that a line stands for; CostError for a line that is none."""
        try:
            op, rest = text.split(" ", 1)
            attrs, end = json.JSONDecoder().raw_decode(rest)
            ending = _ENDING.fullmatch(rest[end:])
            if ending is None or not isinstance(attrs, dict):
                raise ValueError(text)
            operands = [_read_operand(part) for part in _OPERAND.finditer(ending["operands"])]
            settled = Attrs({k: _revived(v) for k, v in attrs.items()})
        except (ValueError, TypeError, RecursionError, EqsatError) as error:
            shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
            raise CostError(f"no operator key: {shown!r}", expected="a line such as 'relu {} float32[2, 8]'") from error
        key = OpKey(op, settled, tuple(type for type, _, _ in operands), tuple(const for _, const, _ in operands))
        layouts = [*(layout for _, _, layout in operands), ending["layout"] or "row"]
        return key.run(layouts, ending["result"] or "", ending["arithmetic"] or "")


#: The ends of keys of kernels that compute on integers in the place of float32, or read packed weights.
_ON_INTEGERS = tuple(f" by {arithmetic}" for arithmetic in ("int8", *PACKINGS))


def is_on_integers(text: str) -> bool:
    """Return whether a key is of a kernel on integers, whose time on one processor says nothing of another's.

    >>> is_on_integers("relu {} uint8[2] by int8"), is_on_integers("relu {} float32[2]")
    (True, False)
    """
    return any(end in text for end in _ON_INTEGERS)


#: Characters of a line that is no key that its error shows.
_SHOWN = 200
_OPERAND = re.compile(r" (?P<const>=?)(?:(?P<dtype>\w+)\[(?P<dims>[\d, ]*)\]|-)(?:@(?P<layout>\w+))?")
_ENDING = re.compile(
    rf"(?P<operands>(?:{re.sub(r'[?]P<[a-z]+>', '?:', _OPERAND.pattern)})*)"
    r"(?: -> (?P<result>\w*)(?:@(?P<layout>\w+))?)?(?: by (?P<arithmetic>\w+))?"
)


def _read_operand(part: re.Match[str]) -> tuple[TensorType | None, bool, str]:
    """The type, whether it is a constant, and the layout of an operand as a key shows it."""
    shape = tuple(int(d) for d in (part["dims"] or "").split(", ") if d)
    type = TensorType.of(part["dtype"], shape) if part["dtype"] else None
    return type, part["const"] == "=", part["layout"] or "row"


def _mark(layout: str) -> str:
    return "" if layout == "row" else f"@{layout}"


def _show(operand: TensorType | None, const: bool, layout: str) -> str:
    return ("=" if const else "") + ("-" if operand is None else str(operand)) + _mark(layout)


def _plain(value: Any) -> Any:
    """An attribute as JSON has it; bytes by their hash."""
    if isinstance(value, bytes):
        return {"blake2b": hashlib.blake2b(value, digest_size=16).hexdigest()}
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def _revived(value: Any) -> Any:
    return tuple(_revived(v) for v in value) if isinstance(value, list) else value
