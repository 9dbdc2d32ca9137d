"""The key of a measured operator: what decides how long it takes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eqsat.errors import CostError
from eqsat.language.graph import Attrs
from eqsat.language.interpret import concrete
from eqsat.language.types import TensorType


@dataclass(frozen=True)
class OpKey:
    """An operator, its attributes, the static types of its operands, and which of these are constants.

    Values of constants are no part of a key; operands left out are None.

    >>> key = OpKey.of("matmul", {}, [TensorType.of("float32", ("n", 8)), TensorType.of("float32", (8, 4))],
    ...     [False, True], {"n": 2})
    >>> key.text
    'matmul {} float32[2, 8] =float32[8, 4]'
    >>> OpKey.parse(key.text) == key
    True
    """

    op: str
    attrs: Attrs
    operands: tuple[TensorType | None, ...]
    const_operands: tuple[bool, ...]

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

    @property
    def is_measurable(self) -> bool:
        """True where every operand has a known shape."""
        return all(t is None or t.is_static for t in self.operands)

    @cached_property
    def text(self) -> str:
        """The key as one line; equal keys have equal lines."""
        attrs = json.dumps({k: _plain(v) for k, v in self.attrs.items()}, sort_keys=True, separators=(",", ":"))
        shown = [_show(t, c) for t, c in zip(self.operands, self.const_operands, strict=True)]
        return " ".join([self.op, attrs, *shown])

    @staticmethod
    def parse(text: str) -> OpKey:
        """The key that a line stands for; CostError for a line that is none."""
        try:
            op, rest = text.split(" ", 1)
            attrs, end = json.JSONDecoder().raw_decode(rest)
        except ValueError as error:
            raise CostError(f"no operator key: {text!r}", expected="a line such as 'relu {} float32[2, 8]'") from error
        operands: list[TensorType | None] = []
        const: list[bool] = []
        for mark, dtype, dims in re.findall(r"(=?)(?:(\w+)\[([\d, ]*)\]|-)", rest[end:]):
            const.append(mark == "=")
            shape = tuple(int(d) for d in dims.split(", ") if d)
            operands.append(TensorType.of(dtype, shape) if dtype else None)
        return OpKey(op, Attrs({k: _revived(v) for k, v in attrs.items()}), tuple(operands), tuple(const))


def _show(operand: TensorType | None, const: bool) -> str:
    return ("=" if const else "") + ("-" if operand is None else str(operand))


def _plain(value: Any) -> Any:
    """An attribute as JSON has it; bytes by their hash."""
    if isinstance(value, bytes):
        return {"blake2b": hashlib.blake2b(value, digest_size=16).hexdigest()}
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def _revived(value: Any) -> Any:
    return tuple(_revived(v) for v in value) if isinstance(value, list) else value
