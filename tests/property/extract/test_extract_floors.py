"""Memory that options and choices are said to need at least, against every order of every choice."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from eqsat.errors import ExtractionError
from eqsat.extract import Memory, Node, Problem, solve
from eqsat.extract.problem.memory import Liveness
from tests.support.choices import COMMON, SIZES, enumerate_choices, least_peak, parts


@st.composite
def with_views(draw: st.DrawFn, *, classes: int, states: int = 1) -> tuple[Problem, Memory]:
    """A problem with one to three roots, of whose options up to a half are views."""
    source = random.Random(draw(st.integers(0, 2**32)))
    try:
        problem = parts(source, classes, states, source.randint(1, min(3, classes)))
    except ExtractionError:
        reject()
    views = source.choice([0.0, 0.2, 0.5])
    aliases = {i: n.operands[0] for i, n in enumerate(problem.nodes) if n.operands and source.random() < views}
    return problem, Memory({(c, s): source.choice(SIZES) for c in range(classes) for s in range(states)}, aliases)


@settings(COMMON, max_examples=300)
@given(st.one_of(with_views(classes=5), with_views(classes=7), with_views(classes=4, states=2)))
def test_no_choice_needs_less_in_any_order(found: tuple[Problem, Memory]) -> None:
    problem, memory = found
    choices = enumerate_choices(problem.program)
    if len(choices) > 60 or any(len(choice) > 7 for choice in choices):
        reject()
    floors = Liveness(problem.program, problem.goals, memory).floors
    for choice in choices:
        peak = least_peak(problem, memory, choice)
        assert floors.floor() <= peak
        assert all(floors.needed[option] <= peak for option in choice.values())


def widening(read: tuple[int, ...], smaller: bool) -> Problem:
    """A value that two wide steps read and their end too, as around a residual block; `read` is what the end reads.

    The block begins with a view of the value; where `smaller`, its wide step may be a narrow one.
    """
    nodes = [Node(0, (), 1.0), Node(1, ((0, 0),), 1.0), Node(2, ((1, 0),), 0.0)]
    nodes += [Node(3, ((2, 0),), 1.0), Node(4, ((3, 0),), 1.0), Node(5, ((4, 0),), 1.0)]
    nodes += [Node(6, ((5, 0), *((r, 0) for r in read)), 1.0)]
    nodes += [Node(4, ((2, 0),), 9.0)] if smaller else []
    sizes = {(c, 0): size for c, size in enumerate((1.0, 10.0, 10.0, 100.0, 100.0, 10.0, 10.0))}
    return Problem(nodes, [(6, 0)], memory=Memory(sizes, {2: (1, 0)}, most=205.0))


@pytest.mark.parametrize(("read", "least"), [((1,), 210), ((2,), 210), ((1, 2), 210)])
def test_what_waits_for_the_end_of_a_block_counts_and_a_view_of_it_counts_once(
    read: tuple[int, ...], least: int
) -> None:
    with pytest.raises(ExtractionError) as error:
        solve(widening(read, smaller=False))
    assert error.value.what == f"peak_memory <= 205 cannot be met: every choice needs at least {least}"
    assert error.value.remedy == f"raise peak_memory to {least}"


def test_nothing_waits_where_the_end_reads_the_block_alone_or_there_is_another_way() -> None:
    assert solve(widening((), smaller=False)).amounts["peak_memory"] == 200.0
    assert solve(widening((1,), smaller=True)).amounts["peak_memory"] == 120.0


def test_the_floor_of_a_block_does_not_take_a_search() -> None:
    problem = widening((1,), smaller=False)
    assert problem.memory is not None
    assert Liveness(problem.program, problem.goals, problem.memory).floors.floor() == 210.0
