"""Functions with others in place of some that they call, which ask for less, or take unknown integers.

NumPy hands its functions to arrays of unknown sizes, but not those that make arrays of numbers alone. References and
shape rules that call these run as copies whose globals have stand-ins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from types import FunctionType, ModuleType
from typing import Any, TypeVar

import numpy as np

from eqsat.language.declaration import OpSpec
from eqsat.language.ops import spec
from eqsat.language.ops.elementwise import broadcasts_to
from eqsat.language.ops.windows import pad_spatial
from eqsat.language.parametric.arrays import IndexedArray, broadcast, broadcasts
from eqsat.language.parametric.integers import NotParametric, Unknown, formula_of
from eqsat.language.parametric.paths import current
from eqsat.language.terms import broadcast_shapes

Function = TypeVar("Function", bound=Callable[..., Any])
_PACKAGE = __name__.partition(".")[0]


def _triangle(rows: Any, columns: Any = None, k: int = 0, dtype: Any = float) -> Any:
    """NumPy's `tri`: true where a column is no later than its row, k columns further on."""
    columns = rows if columns is None else columns
    if all(type(one) is not Unknown for one in (rows, columns, k)):
        return np.tri(rows, columns, k, dtype)
    if dtype is not bool:
        raise NotParametric(f"numpy.tri of {dtype}")
    return IndexedArray((rows, columns), lambda indices: bool(indices[1] <= indices[0] + k))


def _broadcasts_to(shape: Sequence[Any], target: Sequence[Any]) -> bool:
    """False where a shape does not broadcast to another: of each dim it is asked whether it does, not in which way."""
    if len(shape) > len(target):
        return False
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return all(current().decide(broadcasts(formula_of(n), formula_of(d))) for d, n in pairs)


def _with_border(xp: Any, x: Any, pads: Sequence[Any], value: float = 0.0) -> Any:
    """`pad_spatial` that does not ask whether there is a border: one of no width leaves an array as it is."""
    if all(type(pad) is not Unknown for pad in pads):
        return pad_spatial(xp, x, pads, value)
    count = len(pads) // 2
    widths = [(0, 0)] * (x.ndim - count) + list(zip(pads[:count], pads[count:], strict=True))
    return np.pad(x, widths, constant_values=xp.number(value, x))


class _StandInModule:
    """A module some of whose functions are others."""

    def __init__(self, module: ModuleType, functions: dict[str, Callable[..., Any]]) -> None:
        self._module, self._functions = module, functions

    def __getattr__(self, name: str) -> Any:
        return self._functions[name] if name in self._functions else getattr(self._module, name)


#: What stands in for others, by the identities of these.
_STAND_INS: dict[int, Any] = {
    id(np): _StandInModule(np, {"tri": _triangle}),
    # Of dims that are the same, or known to be 1, nothing is asked.
    id(broadcast_shapes): broadcast,
    id(broadcasts_to): _broadcasts_to,
    id(pad_spatial): _with_border,
}


def parametric_spec(op: str) -> OpSpec:
    """The declaration of an operator whose reference and shape rule have stand-ins."""
    declared = spec(op)
    return replace(declared, reference=with_stand_ins(declared.reference), infer=with_stand_ins(declared.infer))


def with_stand_ins(function: Function) -> Function:
    """A function with stand-ins for some that it calls, or functions of this package that it calls do.

    >>> import numpy as np
    >>> def corner():
    ...     return np.tri(2, dtype=bool)[0, 0]
    >>> with_stand_ins(corner)()
    np.True_
    """
    if not isinstance(function, FunctionType):
        return function
    copy: Function = _copy_of(function)
    return copy


@cache
def _copy_of(function: FunctionType) -> Any:
    return _copied(function, {})


def _copied(function: FunctionType, made: dict[FunctionType, FunctionType]) -> FunctionType:
    if function in made:
        return made[function]
    here = dict(function.__globals__)
    copy = FunctionType(function.__code__, here, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__, copy.__module__ = function.__kwdefaults__, function.__module__
    made[function] = copy
    for name, value in function.__globals__.items():
        if id(value) in _STAND_INS:
            here[name] = _STAND_INS[id(value)]
        elif name in function.__code__.co_names and isinstance(value, FunctionType) and _is_followed(value, function):
            here[name] = _copied(value, made)
    return copy


def _is_followed(called: FunctionType, function: FunctionType) -> bool:
    return called.__module__ == function.__module__ or called.__module__.partition(".")[0] == _PACKAGE
