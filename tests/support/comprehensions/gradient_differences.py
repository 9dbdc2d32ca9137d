"""Gradients of comprehensions held against differences in float64."""

from __future__ import annotations

from typing import Any

import numpy as np


def listed(results: Any) -> list[Any]:
    """The results of a call, one or several."""
    return list(results) if isinstance(results, tuple) else [results]


def check_gradient(function: Any, arguments: Any, named: Any) -> None:
    """Hold the gradient of a function in double against differences."""
    gradient, types = function.gradient(), function.types
    parameters = [one.name for one in function.scope.function.parameters]
    floats = [name for name in parameters if types[name].is_float]
    rng = np.random.default_rng(1)
    given = {
        name: value if not types[name].is_float else np.asarray(value, np.float64)
        for name, value in zip(parameters, arguments, strict=True)
    }

    def computed(**changed: Any) -> dict[str, Any]:
        every = {**given, **changed}
        with np.errstate(all="ignore"):
            made = listed(function(*(_number(every[name]) for name in parameters), **named))
        return dict(zip(function.results, made, strict=True))

    outputs = {name: one for name, one in computed().items() if types[name].is_float}
    above = {name: rng.standard_normal(np.shape(one)) for name, one in outputs.items()}
    with np.errstate(all="ignore"):
        passed = [_number(given[name]) for name in parameters] + [_number(one) for one in above.values()]
        made = dict(zip(floats, listed(gradient(*passed, **named)), strict=True))
    for name in floats:
        way, step = rng.standard_normal(np.shape(given[name])), 1e-6
        ends = [computed(**{name: given[name] + sign * step * way}) for sign in (1, -1)]
        with np.errstate(all="ignore"):
            values = [sum(float(np.sum(one[out] * above[out])) for out in outputs) for one in ends]
            wanted, found = (values[0] - values[1]) / (2 * step), float(np.sum(made[name] * way))
        if np.isfinite(wanted):
            assert made[name].shape == np.shape(given[name])
            size = float(np.sum(np.abs(made[name] * way))) + 1
            assert abs(found - wanted) <= 1e-5 * size, (name, found, wanted, gradient)


def _number(value: Any) -> Any:
    return float(value) if np.ndim(value) == 0 and np.asarray(value).dtype.kind == "f" else value
