"""What is printed is read as the same tree, and printed as the same text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat.language.comprehension.text.parser import parse
from eqsat.language.comprehension.text.printer import print_functions
from eqsat.language.comprehension.text.syntax import (
    Applied,
    Binary,
    Conditional,
    ExistsClause,
    Function,
    IndexEquation,
    LetClause,
    Name,
    Number,
    Parameter,
    RangeClause,
    Returned,
    Truth,
    Unary,
)
from tests.support.comprehensions.comprehension_corpus import RIGHT, WRONG
from tests.support.comprehensions.comprehension_runs import KEYWORDS

SOURCES = sorted(
    {program.source for program in (*RIGHT, *WRONG) if "SyntaxError" not in str(getattr(program, "error", ""))}
)

NAMES = st.one_of(
    st.sampled_from(
        ["x", "y", "i", "k", "N", "min", "max", "float", "exp", "e1", "f", "_", "inn", "whereas", "truest"]
    ),
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,3}", fullmatch=True),
).filter(lambda name: name not in KEYWORDS)
NUMBERS = st.one_of(
    st.integers(0, 2**63 - 1),
    st.floats(0, allow_nan=False).map(abs),
    st.sampled_from([0, 1, 1e-7, 1e16, 5e-324, float("inf")]),
).map(Number)
OPERATORS = ["||", "&&", "<", "<=", ">", ">=", "==", "!=", "+", "-", "*", "/", "%"]


def larger(inner: st.SearchStrategy) -> st.SearchStrategy:
    return st.one_of(
        st.builds(Unary, st.sampled_from("-!"), inner),
        st.builds(Binary, st.sampled_from(OPERATORS), inner, inner),
        st.builds(Conditional, inner, inner, inner),
        CALLS(inner),
    )


def CALLS(inner: st.SearchStrategy) -> st.SearchStrategy:  # noqa: N802
    return st.builds(Applied, NAMES, st.lists(inner, max_size=3).map(tuple))


EXPRESSIONS = st.recursive(
    st.one_of(NUMBERS, st.builds(Truth, st.booleans()), st.builds(Name, NAMES)), larger, max_leaves=9
)
EXTENTS = st.lists(st.one_of(NAMES, st.integers(0, 2**40)), max_size=3).map(tuple)
CLAUSES = st.one_of(
    st.builds(RangeClause, NAMES, EXPRESSIONS, EXPRESSIONS),
    st.builds(LetClause, NAMES, EXPRESSIONS),
    st.builds(ExistsClause, CALLS(EXPRESSIONS)),
)
STATEMENTS = st.builds(
    IndexEquation,
    NAMES,
    st.lists(EXPRESSIONS, max_size=2).map(tuple),
    st.sampled_from(["", "+", "*", "min", "max"]),
    st.booleans(),
    EXPRESSIONS,
    st.lists(CLAUSES, max_size=2).map(tuple),
).filter(lambda one: bool(one.reduction) or not one.fresh)
RESULTS = st.one_of(
    st.builds(Returned, NAMES), st.builds(Returned, NAMES, NAMES), st.builds(Returned, NAMES, NAMES, EXTENTS)
)
FUNCTIONS = st.builds(
    Function,
    NAMES,
    st.lists(st.builds(Parameter, NAMES, NAMES, EXTENTS), max_size=2).map(tuple),
    st.lists(RESULTS, max_size=2).map(tuple),
    st.lists(STATEMENTS, max_size=2).map(tuple),
)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.split("def ")[-1].split("(")[0])
def test_programs_of_the_corpus_are_read_again_as_the_same(source: str) -> None:
    trees = parse(source)
    text = print_functions(trees)
    assert parse(text) == trees
    assert print_functions(parse(text)) == text


@settings(max_examples=60, derandomize=True)
@given(st.lists(FUNCTIONS, min_size=1, max_size=2).map(tuple))
def test_trees_are_read_again_as_the_same(trees: tuple[Function, ...]) -> None:
    text = print_functions(trees)
    assert parse(text) == trees
    assert print_functions(parse(text)) == text
