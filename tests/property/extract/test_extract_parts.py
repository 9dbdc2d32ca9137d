"""Parts of a program that share no goal: found between goals that every choice provides, and equal ones solved once."""

from __future__ import annotations

import math
from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat.extract import Node, Problem, solve
from eqsat.extract.problem.program import closure, total, unfounded
from eqsat.extract.solvers.parts import parts_of, rooted
from tests.property.extract.test_extract_optimum import COMMON, check, optimum, problems
from tests.support.choices import enumerate_choices


def chained(block: Problem, copies: int, random: Random) -> Problem:
    """Copies of a problem one after the other: the leaves of each need the first root of the one before.

    Nodes and classes of a copy are numbered at random, so that nothing but their structure shows that they are equal.
    """
    classes = 1 + max(node.eclass for node in block.nodes)
    numbers = random.sample(range(copies * classes), copies * classes)
    nodes, before = [], ()
    for copy in range(copies):
        own = numbers[copy * classes : (copy + 1) * classes]
        for node in block.nodes:
            operands = tuple((own[eclass], state) for eclass, state in node.operands) or before
            nodes.append(Node(own[node.eclass], operands, node.cost, node.state))
        before = ((own[block.roots[0][0]], block.roots[0][1]),)
    random.shuffle(nodes)
    return Problem(nodes, list(before))


@settings(COMMON, max_examples=120)
@given(problems(classes=3, size=5), st.randoms(use_true_random=False))
def test_the_optimum_of_a_chain_of_equal_blocks(block: Problem, random: Random) -> None:
    problem = chained(block, 2, random)
    solution = solve(problem, time_limit=60)
    check(problem, solution)
    assert solution.status == "optimal"
    assert math.isclose(solution.cost, optimum(problem), rel_tol=1e-8, abs_tol=1e-18)


@settings(COMMON, max_examples=200)
@given(problems())
def test_goals_that_every_choice_provides_become_roots_and_change_no_choice(problem: Problem) -> None:
    program = problem.program
    choices = list(enumerate_choices(program))
    asked = rooted(program)
    assert set(program.roots) <= set(asked.roots) <= set.intersection(*(set(choice) for choice in choices))


@settings(COMMON, max_examples=120)
@given(problems(classes=4, size=8), st.randoms(use_true_random=False))
def test_a_choice_of_a_part_is_one_of_each_part_of_its_shape(block: Problem, random: Random) -> None:
    """Two copies of a problem side by side, numbered differently."""
    classes = 1 + max(node.eclass for node in block.nodes)
    numbers = random.sample(range(2 * classes), 2 * classes)
    nodes = [
        Node(numbers[copy * classes + n.eclass], tuple((numbers[copy * classes + c], s) for c, s in n.operands), n.cost)
        for copy in range(2)
        for n in block.nodes
    ]
    random.shuffle(nodes)
    both = Problem(nodes, [(numbers[copy * classes + c], s) for copy in range(2) for c, s in block.roots])
    parts = parts_of(both.program)
    for one in parts:
        for other in parts:
            if one.shape != other.shape:
                continue
            for choice in list(enumerate_choices(other.program))[:20]:
                alike = one.like(other, choice)
                assert closure(one.program, alike, one.program.roots) == alike
                assert not unfounded(one.program, alike)
                assert math.isclose(total(one.program, alike), total(other.program, choice), rel_tol=1e-12)


def test_equal_parts_are_seen_to_be_equal_however_they_are_numbered() -> None:
    """A block of two ways, four times, and once with another cost."""
    nodes = []
    blocks = ((0, 4, 8), (11, 7, 3), (2, 10, 6), (5, 1, 9), (13, 14, 12))
    for a, b, c in blocks:
        nodes += [Node(a, (), 1.0), Node(b, ((a, 0),), 2.0), Node(c, ((b, 0), (a, 0)), 4.0), Node(c, ((a, 0),), 7.0)]
    nodes[-1] = Node(12, ((13, 0),), 6.5)
    parts = parts_of(Problem(nodes, [(c, 0) for *_, c in blocks]).program)
    assert sorted(Counter(part.shape for part in parts).values()) == [1, 4]


def test_parts_meet_in_what_every_choice_provides() -> None:
    """Two blocks in a row, each with two ways: both ways read the first result, so it is a root."""
    ways = [Node(1, ((0, 0),), 1.0), Node(2, ((0, 0),), 1.0), Node(3, ((1, 0),), 2.0), Node(3, ((2, 0),), 2.5)]
    ways += [Node(4, ((3, 0),), 1.0), Node(5, ((3, 0),), 1.0), Node(6, ((4, 0),), 2.0), Node(6, ((5, 0),), 2.5)]
    problem = Problem([Node(0, (), 1.0), *ways], [(6, 0)])
    assert sorted(problem.goals[goal] for goal in rooted(problem.program).roots) == [(0, 0), (3, 0), (6, 0)]
    assert solve(problem).cost == 7.0
