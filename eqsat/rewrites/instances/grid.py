"""The shapes and attributes that an operator can have beside operands of given types, all of them up to a bound."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from eqsat.errors import GraphError
from eqsat.language.declaration.bounds import Bounds, Choices, Sizes, broadcasts, shapes
from eqsat.language.declaration.spec import REQUIRED
from eqsat.language.ops import spec
from eqsat.language.ops.operands.enumeration import of
from eqsat.language.terms import Attrs, TensorType


@cache
def operand_shapes(op: str, known: tuple[Sizes | None, ...], place: int, bounds: Bounds) -> tuple[Sizes, ...]:
    """The shapes that an operand may have beside others of known shapes.

    Some may still not fit, but none that fits is left out, except for operators that need more than a shape to say so.
    """
    declared = spec(op)
    if declared.beside is not None:
        return tuple(declared.beside(known, place, bounds))
    if declared.pointwise:
        return tuple(s for s in shapes(bounds) if broadcasts(s, *(k for k in known if k is not None)))
    return shapes(bounds)


@cache
def settings(
    op: str, types: tuple[TensorType | None, ...], fixed: Attrs, bounds: Bounds
) -> tuple[tuple[Attrs, tuple[TensorType, ...]], ...]:
    """The attributes, `fixed` ones given, that an operator takes for operands of these types, and its result types."""
    declared = spec(op)
    dims = [t.static for t in types if t is not None]
    free = [n for n in declared.attrs if n not in fixed]
    typed = []
    try:
        candidates = list(_attributes(op, free, fixed, dims, bounds))
    except (IndexError, ValueError):  # operands of a rank that the operator does not take
        return ()
    for chosen in candidates:
        attrs = completed(op, {**fixed, **chosen})
        try:
            results = declared.result_types(types, attrs)
        except (GraphError, IndexError, TypeError, ValueError):
            continue
        if all(t.is_static for t in results):
            typed.append((attrs, results))
    return tuple(typed)


def completed(op: str, attrs: Mapping[str, Any]) -> Attrs:
    """The attributes with defaults filled in, one object for equal ones."""
    return _completed(op, tuple((n, type(v).__name__, v) for n, v in attrs.items()))


@lru_cache(maxsize=200_000)
def _completed(op: str, attrs: tuple[tuple[str, str, Any], ...]) -> Attrs:
    return spec(op).complete({name: value for name, _, value in attrs})


def is_complete(op: str, names: Iterable[str]) -> bool:
    """True if the grid knows every value of these attributes of an operator, rather than those of its instances."""
    joint, _ = _joint(op)
    return all(n in joint or _choices(op, n) is not None for n in names)


def _joint(op: str) -> tuple[tuple[str, ...], Choices | None]:
    """The attributes of an operator that only make sense together, and their values."""
    pairs = ((names, values) for names, values in spec(op).choices.items() if isinstance(names, tuple))
    return next(pairs, ((), None))


def _choices(op: str, name: str) -> Choices | None:
    """The values of one attribute: those of the operator's declaration, else those that its name stands for."""
    return spec(op).choices.get(name) or _NAMED.get(name)


def _attributes(
    op: str, free: Sequence[str], fixed: Mapping[str, Any], dims: Sequence[Sizes], bounds: Bounds
) -> Iterator[dict[str, Any]]:
    joint, values = _joint(op)
    given = [n for n in joint if n in fixed]
    together: list[dict[str, Any]] = [{}]
    if values is not None and len(given) < len(joint):
        together = [dict(zip(joint, v, strict=True)) for v in values(bounds, dims)]
        together = [t for t in together if all(t[n] == fixed[n] for n in given)]
    rest = [n for n in free if n not in joint]
    declared = spec(op)
    columns = []
    for name in rest:
        choices = _choices(op, name)
        if choices is not None:
            columns.append(list(choices(bounds, dims)))
        else:
            stated = [i[name] for i in declared.instances if name in i and not callable(i[name])]
            columns.append(list(dict.fromkeys(stated)) or [declared.attrs[name]])
    for first in together:
        for row in itertools.product(*columns):
            if REQUIRED not in row:
                yield {**{k: v for k, v in first.items() if k not in fixed}, **dict(zip(rest, row, strict=True))}


def _axes(bounds: Bounds, dims: Sequence[Sizes]) -> Iterator[Sizes]:
    for count in range(len(dims[0]) + 1):
        yield from itertools.combinations(range(len(dims[0])), count)


def _axis(bounds: Bounds, dims: Sequence[Sizes]) -> Iterable[int]:
    return range(len(dims[0]))


#: The values of attributes that mean the same with every operator.
_NAMED: dict[str, Choices] = {
    "axis": _axis,
    "axes": _axes,
    "perm": lambda bounds, dims: itertools.permutations(range(len(dims[0]))),
    "keepdims": of(False, True),
    "activation": of("none", "relu"),
    "direction": of("forward", "reverse", "bidirectional"),
    "layout": of(0, 1),
    "input_forget": of(False, True),
    "linear_before_reset": of(False, True),
    "ceil_mode": of(False, True),
    "count_include_pad": of(False, True),
    "trans_a": of(False, True),
    "trans_b": of(False, True),
    "alpha": of(1.0, 0.5),
    "beta": of(1.0, 0.25),
    "epsilon": of(0.25),
    "dtype": of("float64"),
    "to": of("float64", "float32"),
    "approximate": of("none", "tanh"),
    "upper": of(False, True),
    "exclusive": of(False, True),
    "reverse": of(False, True),
    "fmod": of(True),
    "detect_negative": of(False, True),
    "detect_positive": of(False, True),
}


def words(name: str) -> tuple[str, ...]:
    """The words that an attribute may be, where it means the same with every operator.

    >>> words("approximate"), words("alpha")
    (('none', 'tanh'), ())
    """
    known = _NAMED.get(name)
    return () if known is None else tuple(v for v in known(Bounds(), ((),)) if isinstance(v, str))
