"""Functions of mutated programs, written out in standard operators: they compute what calls do, or stay as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings

import eqsat
from eqsat.errors import ComprehensionError, EqsatError
from eqsat.language.comprehension.graphs.operators import operator_of
from eqsat.language.declaration import registry
from eqsat.rewrites.rules.definitions import expanded
from eqsat.runtime.backend import execute
from tests.property.language.comprehension.test_comprehension_mutants import MOST_POINTS, mutants, sized
from tests.support.comprehensions.comprehension_cases import Right, check_equal
from tests.support.comprehensions.comprehension_runs import inferred, size_of_run


@settings(max_examples=400, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(mutants(3))
def test_what_a_mutant_is_written_as_computes_what_its_calls_do(mutant: tuple[Right, str]) -> None:
    program, source = mutant
    try:
        functions = eqsat.comprehension(source)
    except ComprehensionError:
        return
    function = functions[list(functions)[-1]]
    if not function.operands or function.scope.updated:
        return
    # The name of an operator that ships would be taken.
    program = sized(program, function)
    arguments, _ = program.arguments(function)
    try:
        if size_of_run(function, arguments) > MOST_POINTS:
            return
        inferred(function, arguments)
        expected = function(*arguments)
    except EqsatError:
        return
    check(function, arguments, expected)


def check(function: Any, arguments: list[Any], expected: Any) -> None:
    """Hold what a function is written as against its results."""
    name = operator_of(function).name
    try:
        g = eqsat.Graph("mutant")
        feeds: dict[str, Any] = {}
        given_: list[Any] = []
        for one, value in zip(function.scope.function.parameters, arguments, strict=True):
            if one.name in function.needs:
                given_.append(int(value))
                continue
            feeds[f"in_{one.name}"] = np.asarray(value, function.types[one.name].numpy)
            given_.append(g.input(f"in_{one.name}", feeds[f"in_{one.name}"].shape, function.types[one.name].value))
        made = function(*given_)
        for number, result in enumerate(made if isinstance(made, tuple) else (made,)):
            g.output(f"o{number}", result)
        standard = expanded(g.build(), [name])
        if any(node.op == name for node in standard.nodes):
            return
        with np.errstate(all="ignore"):
            results = execute(standard, feeds, "numpy")
        ordered = tuple(results[f"o{number}"] for number in range(len(results)))
        check_equal(ordered if len(ordered) > 1 else ordered[0], expected)
    finally:
        registry.forget(name)
