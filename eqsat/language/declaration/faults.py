"""Errors of the parts of a declaration, blamed on the declaration."""

from __future__ import annotations

import difflib
import linecache
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from eqsat.errors import DeclarationError, EqsatError
from eqsat.language.parametric.integers import NotParametric
from eqsat.language.terms import TensorType

Operands: TypeAlias = Sequence[TensorType | None]


class Declared(Protocol):
    """An operator as messages name it."""

    @property
    def name(self) -> str:
        """The name of the operator."""

    @property
    def where(self) -> str:
        """File and line of its reference."""


@contextmanager
def declaration_at_fault(declared: Declared, part: str, operands: Operands, attrs: Mapping[str, Any]) -> Iterator[None]:
    """Turn whatever a part of a declaration raises into a DeclarationError that names the part and its operands."""
    try:
        yield
    except (EqsatError, NotParametric):
        raise
    except Exception as error:
        raise DeclarationError(
            f"operator {declared.name!r}: its {part} fails on {described(operands, attrs)}: "
            f"{type(error).__name__}: {error}",
            where=_line(error, declared.where),
            expected=_EXPECTED[part],
            remedy=_remedy(error),
        ) from error


_EXPECTED = {
    "shape rule": "types of the outputs, or a ShapeError for operands that the operator does not take",
    "rule for partial": "whether finite operands of these types may make an infinity or NaN",
    "sample rule": "shapes of all operands with the attributes, or None where those known cannot be completed",
    "reference": "a result for all operands that the shape rule accepts, computed by xp and NumPy's movement functions",
}


def _remedy(error: Exception) -> str:
    """A question for the name that was perhaps meant by one that does not exist; empty where none is close."""
    name, owner = getattr(error, "name", None), getattr(error, "obj", None)
    close = difflib.get_close_matches(name, dir(owner), n=1) if isinstance(error, AttributeError) and name else []
    return f"did you mean {close[0]}?" if close else ""


def check_results(declared: Declared, made: Sequence[Any], results: Sequence[TensorType], operands: Operands) -> None:
    """DeclarationError where the reference makes something else than the shape rule says."""
    shapes = [tuple(getattr(array, "shape", ())) for array in made]
    stated = [t.shape for t in results]
    if len(shapes) == len(stated) and all(
        not t.is_static or shape == t.static for shape, t in zip(shapes, results, strict=True)
    ):
        return
    raise DeclarationError(
        f"operator {declared.name!r}: its reference makes shapes {_list(shapes)} of {described(operands, {})}, "
        f"its shape rule says {_list(stated)}",
        where=declared.where,
        expected="one answer",
        remedy="correct infer= or index= of the declaration, or its reference",
    )


def described(operands: Operands, attrs: Mapping[str, Any]) -> str:
    """Operand types and attributes as messages name them."""
    return ", ".join(
        [*("nothing" if t is None else str(t) for t in operands), *(f"{k}={v!r}" for k, v in attrs.items())]
    )


def _list(shapes: Sequence[Any]) -> str:
    return " and ".join(str(list(s)) for s in shapes) or "nothing"


def _line(error: BaseException, otherwise: str) -> str:
    """The innermost line of the user's that was running."""
    own = str(Path(__file__).parents[2])
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(own)]
    frames = [f for f in frames if linecache.getline(f.filename, f.lineno or 0) and "site-packages" not in f.filename]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else otherwise
