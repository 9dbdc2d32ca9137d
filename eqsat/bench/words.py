"""Functions of other frameworks that follow from operators' declarations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from eqsat.language.declaration.spec import OpSpec
from eqsat.language.ops import OPS
from eqsat.language.terms import DType, Graph, Node, TensorType

#: (attributes, shapes of the results, operands) -> a result, or a tuple of them.
Word: TypeAlias = Callable[..., Any]


def plain_words(modules: Sequence[Any], renamed: Mapping[str, str]) -> dict[str, Word]:
    """The operators without attributes that a framework has a function for, by NumPy's name, its own or as `renamed`.

    The modules are searched in order.
    """
    words: dict[str, Word] = {}
    for declared in OPS.values():
        for name, places in _names(declared):
            known = renamed.get(name, name)
            function = next((f for m in modules if (f := getattr(m, known, None)) is not None), None)
            if function is not None:
                words[declared.name] = _word(function, places)
                break
    return words


def result_shapes(graph: Graph, node: Node) -> list[tuple[int, ...]]:
    """The shapes of a node's results; () where one is not known."""
    types = [graph.type(value) if value else None for value in node.outputs]
    return [t.static if isinstance(t, TensorType) and t.is_static else () for t in types]


def _word(function: Callable[..., Any], places: Sequence[int]) -> Word:
    def word(_attrs: Mapping[str, Any], _shapes: Sequence[Any], *operands: Any) -> Any:
        return function(*(operands[place] for place in places))

    return word


def _names(declared: OpSpec) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names of functions that mean what an operator does, each with the order it takes the operands in."""
    count = declared.min_operands
    if declared.attrs or declared.max_operands != count:
        return
    applied = _applied(declared, count)
    if applied is not None:
        yield applied
    if declared.pointwise and declared.is_shipped:
        places = tuple(range(count))
        if declared.dtypes.get(0) == DType.BOOL.value:
            yield f"logical_{declared.name.strip('_')}", places
        elif count == 1:
            yield declared.name, places


@dataclass(frozen=True)
class _Applied:
    """A function applied to operands, by its name."""

    name: str
    operands: tuple[Any, ...]


class _TracedNames:
    """The arithmetic of a reference, of which only the names are kept."""

    exact = True

    def apply(self, name: str, x: Any) -> _Applied:
        return _Applied(name, (x,))

    def __getattr__(self, name: str) -> Callable[..., _Applied]:
        return lambda *operands: _Applied(name, operands)


def _applied(declared: OpSpec, count: int) -> tuple[str, tuple[int, ...]] | None:
    """The function that a reference applies to its operands, where that is all it does."""
    given = [_Applied(str(place), ()) for place in range(count)]
    try:
        applied = declared.reference(_TracedNames(), *given)
    except (AttributeError, TypeError, ValueError):
        return None
    if not isinstance(applied, _Applied) or len(applied.operands) != count or set(applied.operands) != set(given):
        return None
    return applied.name, tuple(int(operand.name) for operand in applied.operands)
