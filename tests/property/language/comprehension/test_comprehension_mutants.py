"""Programs with tokens changed at random: each is refused in eqsat's words, or computes what the interpreter does."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.errors import ComprehensionError, EqsatError
from tests.support.comprehensions.comprehension_cases import Right, check_equal
from tests.support.comprehensions.comprehension_corpus import RIGHT, WRONG
from tests.support.comprehensions.comprehension_runs import inferred, interpreted, is_name, size_of_run, tokens
from tests.support.comprehensions.scalar_interpreter import FaultError, UndefinedError

SOURCES = [(program, tokens(program.source)) for program in RIGHT]
BAD_SOURCES = [(Right(one.source, lambda: None, one.sizes or {}, one.given), tokens(one.source)) for one in WRONG]
#: All that a token is replaced by, large numbers aside.
POOL = sorted({word for _, words in SOURCES for word in words if not word.isdigit() or int(word) < 12})
MOST_POINTS = 3000
#: Tokens that stand in the same places.
ALIKE = (
    ("+", "-", "*", "/", "%"),
    ("<", "<=", ">", ">=", "==", "!="),
    ("=", "+=", "+=!", "*=", "*=!", "min=", "min=!", "max=", "max=!"),
    ("bool", "uint8", "int8", "int", "int64", "uint64", "half", "bfloat16", "float", "double"),
    ("0", "1", "2", "3", "0.5", "N", "i"),
)
#: Parts that a name is replaced by.
PARTS = (
    "(-1)",
    "0",
    "i",
    "-i",
    "(i + 1)",
    "(i - 1)",
    "(N - 1)",
    "x(i)",
    "2 * i",
    "i / 2",
    "i % 2",
    "min(i, 1)",
    "true",
)


@st.composite
def mutants(draw: st.DrawFn, most: int) -> tuple[Right, str]:
    """A program, and its text with some tokens changed."""
    program, words = draw(st.sampled_from(SOURCES + BAD_SOURCES))
    words = list(words)
    own = [word for word in words if is_name(word)]
    for _ in range(draw(st.integers(0, most))):
        at = draw(st.integers(0, len(words) - 1))
        match draw(st.sampled_from(["delete", "duplicate", "swap", "replace", "rename", "insert", "alike", "part"])):
            case "delete":
                del words[at]
            case "duplicate":
                words.insert(at, words[at])
            case "swap":
                other = draw(st.integers(0, len(words) - 1))
                words[at], words[other] = words[other], words[at]
            case "replace":
                words[at] = draw(st.sampled_from(POOL))
            case "rename":
                words[at] = draw(st.sampled_from(own)) if own and is_name(words[at]) else words[at]
            case "alike":
                words[at] = draw(st.sampled_from(next((group for group in ALIKE if words[at] in group), (words[at],))))
            case "part":
                words[at] = draw(st.sampled_from(PARTS)) if is_name(words[at]) else words[at]
            case "insert":
                words.insert(at, draw(st.sampled_from(POOL)))
        assume(words)
    return program, " ".join(words)


def sized(program: Right, function: Any) -> Right:
    """A program with a size for each name that a mutant may have made one."""
    extents = {one for parameter in function.scope.function.parameters for one in parameter.extents}
    sizes = {one: program.sizes.get(one, 3) for one in extents if isinstance(one, str)}
    scalars = {one.name for one in function.scope.function.parameters if not one.extents}
    names = {one.name for one in function.scope.function.parameters} | set(function.scope.updated)
    given = {name: value for name, value in program.given.items() if name in names}
    return Right(program.source, program.reference, sizes, dict.fromkeys(scalars - given.keys(), 2) | given)


@settings(max_examples=400, derandomize=True, suppress_health_check=list(HealthCheck))
@given(mutants(4))
def test_a_mutant_is_refused_in_words_or_computes_what_the_interpreter_does(mutant: tuple[Right, str]) -> None:
    program, source = mutant
    try:
        functions = eqsat.comprehension(source)
    except ComprehensionError:
        return
    function = functions[list(functions)[-1]]
    call(sized(program, function), function)


def call(program: Right, function: Any) -> None:
    """Call a function; hold what comes out, or the fault, against the interpreter."""
    arguments, more = program.arguments(function)
    try:
        inferred(function, arguments)
    except EqsatError:
        return
    if size_of_run(function, arguments) > MOST_POINTS:
        return
    try:
        made = function(*arguments, **more)
    except ComprehensionError:
        made = None
    except EqsatError:
        return
    try:
        results, ranges = interpreted(function, arguments, more)
    except UndefinedError:
        return
    except FaultError:
        assert made is None
        return
    assert made is not None
    assert [dict(box) for box in inferred(function, arguments).ranges] == ranges
    with np.errstate(all="ignore"):
        check_equal(made, results)
