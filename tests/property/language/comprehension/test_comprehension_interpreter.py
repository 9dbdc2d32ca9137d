"""The corpus by an interpreter that shares nothing with eqsat but the syntax tree: the same values and ranges."""

from __future__ import annotations

import pytest

import eqsat
from eqsat.language.comprehension.text.parser import parse
from eqsat.language.comprehension.text.printer import print_function
from eqsat.language.comprehension.text.syntax import Function
from tests.support.comprehensions.comprehension_cases import Right, check_equal
from tests.support.comprehensions.comprehension_corpus import RIGHT
from tests.support.comprehensions.comprehension_runs import inferred, interpreted, renamed, turned_statement


def named(program: Right) -> str:
    return program.source.split("def ")[-1].split("(")[0]


@pytest.mark.parametrize("program", RIGHT, ids=named)
def test_one_point_at_a_time_gives_the_same_values_and_ranges(program: Right) -> None:
    function = program.function
    arguments, more = program.arguments(function, seed=2)
    results, ranges = interpreted(function, arguments, more)
    made = function(*arguments, **more)
    check_equal(made, results)
    assert [dict(box) for box in inferred(function, arguments).ranges] == ranges


@pytest.mark.parametrize("program", RIGHT, ids=named)
def test_other_names_give_the_same_ranges_text_and_values(program: Right) -> None:
    function = program.function
    source, names = renamed(program.source)
    functions = eqsat.comprehension(source)
    other = functions[list(functions)[-1]]
    arguments, more = program.arguments(function)
    assert other.canonical == function.canonical
    boxes = [{names[index]: box for index, box in boxes.items()} for boxes in inferred(function, arguments).ranges]
    assert [dict(box) for box in inferred(other, arguments).ranges] == boxes
    check_equal(other(*arguments, **{names[name]: value for name, value in more.items()}), function(*arguments, **more))


@pytest.mark.parametrize("program", RIGHT, ids=named)
def test_operands_the_other_way_round_give_the_same_ranges(program: Right) -> None:
    function = program.function
    tree = parse(program.source)[-1]
    statements = tuple(map(turned_statement, tree.statements))
    source = print_function(Function(tree.name, tree.parameters, tree.results, statements))
    other = eqsat.comprehension(source)[tree.name]
    arguments, more = program.arguments(function)
    before, after = inferred(function, arguments), inferred(other, arguments)
    assert list(map(dict, after.ranges)) == list(map(dict, before.ranges))
    assert after.shapes == before.shapes
    check_equal(other(*arguments, **more), function(*arguments, **more))


def test_different_programs_have_different_canonical_texts() -> None:
    texts: dict[str, str] = {}
    for program in RIGHT:
        texts.setdefault(program.function.canonical, program.source)
    assert len(texts) == len(RIGHT)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("y(i) = x(i) + 1", "y(i) = x(i) + 2"),
        ("y(i) = x(i) + 1", "y(i) = 1 + x(i)"),
        ("y(i) = x(i) - x(0)", "y(i) = x(0) - x(i)"),
        ("y(i) = x(i)", "y(i) +=! x(i)"),
        ("y(i) += x(i)", "y(i) +=! x(i)"),
        ("y(i) min=! x(i)", "y(i) max=! x(i)"),
        ("y(i) = x(i)", "y(i) = x(i) where i in 0:2"),
        ("y(i) = x(i) where i in 0:3", "y(i) = x(i) where i in 0:2"),
        ("y(i) = x(i) * 1.0", "y(i) = x(i) * 1"),
        ("y(i) = 1 where i in 0:N", "y(i) = 1.0 where i in 0:N"),
        ("y(i) = exp(x(i))", "y(i) = exp2(x(i))"),
        ("y(i) = x(i)", "t(i) = x(i) y(i) = t(i)"),
    ],
)
def test_programs_that_differ_in_more_than_names_have_other_texts(first: str, second: str) -> None:
    texts = {eqsat.comprehension(f"def f(float(N) x) -> (y) {{ {body} }}").f.canonical for body in (first, second)}
    assert len(texts) == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("y(i) = x(i)", "y(k)   =\n# the same\nx(k)"),
        ("y(i) = x(i) + (1 * 2)", "y(i) = x(i) + 1 * 2"),
        ("y(i) = a * a where a = x(i) + 1", "y(i) = (x(i) + 1) * (x(i) + 1)"),
        ("y(i) = fmaxf(x(i), +2)", "y(i) = fmax(x(i), 2)"),
        ("y(i,j) = x(i) + x(j) where i in 0:2, j in 0:3", "y(i,j) = x(i) + x(j) where j in 0:3, i in 0:2"),
        ("y(i) = float32(x(i))", "y(i) = float(x(i))"),
        ("t = 2 y(i) = x(i) * t", "u = 2 y(i) = x(i) * u"),
    ],
)
def test_programs_that_say_the_same_have_one_text(first: str, second: str) -> None:
    texts = {eqsat.comprehension(f"def f(float(N) x) -> (y) {{ {body} }}").f.canonical for body in (first, second)}
    assert len(texts) == 1
