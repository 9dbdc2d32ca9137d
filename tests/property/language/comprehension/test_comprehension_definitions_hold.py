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
from tests.support.comprehensions.graph_calls import graph_of_call, ordered


@settings(max_examples=400, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(mutants(3))
def test_what_a_mutant_is_written_as_computes_what_its_calls_do(mutant: tuple[Right, str]) -> None:
    program, source = mutant
    try:
        functions = eqsat.comprehension(source)
    except ComprehensionError:
        return
    function = functions[list(functions)[-1]]
    if not function.operands:
        return
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
        graph, feeds = graph_of_call(function, arguments)
        standard = expanded(graph, [name])
        if any(node.op == name for node in standard.nodes):
            return
        with np.errstate(all="ignore"):
            check_equal(ordered(execute(standard, feeds, "numpy")), expected)
    finally:
        registry.forget(name)
