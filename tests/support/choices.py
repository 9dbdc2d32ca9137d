"""Small problems with limits and memories, and their best choices by enumeration of every choice and every order."""

from __future__ import annotations

import itertools
import math
import random

from hypothesis import HealthCheck, reject, settings
from hypothesis import strategies as st

from eqsat.errors import ExtractionError
from eqsat.extract import PEAK, Conversion, Limit, Memory, Node, Problem
from eqsat.extract.problem.limits import exceeds
from eqsat.extract.problem.program import Choice, ExtractionProgram, unfounded

COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
COSTS = [0.0, 0.0, 1e-6, 2e-6, 3e-6, 5e-6, 1e-5, 1.7e-5]
AMOUNTS = [0.0, 0.0, 1.0, 1.0, 2.0, 3.0, 7.0]
SIZES = [0.0, 1.0, 2.0, 3.0, 5.0, 8.0]


def enumerate_choices(program: ExtractionProgram) -> list[Choice]:
    """Every closed acyclic choice."""
    found: list[Choice] = []

    def extend(choice: Choice, waiting: tuple[int, ...]) -> None:
        open_ = [goal for goal in waiting if goal not in choice]
        if not open_:
            if not unfounded(program, choice):
                found.append(dict(choice))
            return
        for option in program.by_goal[open_[0]]:
            extend({**choice, open_[0]: option}, (*open_[1:], *program.needs[option]))

    extend({}, tuple(program.roots))
    return found


def least_peak(problem: Problem, memory: Memory, choice: Choice) -> float:
    """Over every order of the options with operands, by the lives of the values."""
    program, goals = problem.program, problem.goals
    steps = [goal for goal, option in choice.items() if program.needs[option]]

    def storage(goal: int) -> int:
        while choice[goal] in memory.aliases:
            goal = goals.index(memory.aliases[choice[goal]])
        return goal

    best = math.inf
    for order in itertools.permutations(steps):
        time = {goal: index for index, goal in enumerate(order)}
        if any(time.get(need, -1) >= time[goal] for goal in order for need in program.needs[choice[goal]]):
            continue
        spans = {goal: [time.get(goal, -1), time.get(goal, -1)] for goal in choice if storage(goal) == goal}
        for goal in order:
            for touched in (goal, *program.needs[choice[goal]]):
                spans[storage(touched)][1] = max(spans[storage(touched)][1], time[goal])
        for root in program.roots:
            spans[storage(root)][1] = len(order)
        live = [
            sum(memory.sizes.get(goals[goal], 0.0) for goal, (a, z) in spans.items() if a <= t <= z)
            for t in range(-1, len(order) + 1)
        ]
        best = min(best, max(live))
    return best


def parts(draw: random.Random, classes: int, states: int, roots: int) -> Problem:
    """Classes of two or three nodes, over earlier classes or, one operand in five, over any; some are leaves."""
    nodes = []
    for c in range(classes):
        for index in range(draw.randint(2, 3)):
            leaf = c == 0 or (index == 0 and draw.random() < 0.3)
            reach = [
                draw.randrange(classes) if draw.random() < 0.2 else draw.randrange(c) for _ in range(2 if c else 0)
            ]
            operands = () if leaf else tuple((r, draw.randrange(states)) for r in reach[: draw.randint(1, 2)])
            nodes.append(Node(c, operands, draw.choice(COSTS), draw.randrange(states)))
    pairs = list(itertools.permutations(range(states), 2))
    conversions = [
        Conversion(c, *pair, draw.choice(COSTS)) for c in range(classes) for pair in pairs if draw.random() < 0.7
    ]
    wanted = [(classes - 1 - i, draw.randrange(states)) for i in range(roots)]
    return Problem(nodes, wanted, conversions, states)


def limit(draw: random.Random, name: str, problem: Problem, choices: list[Choice]) -> Limit:
    """At most what some choice uses, or now and then a little less than every choice."""
    nodes = [draw.choice(AMOUNTS) for _ in problem.nodes]
    conversions = [draw.choice(AMOUNTS) for _ in problem.conversions] if draw.random() < 0.7 else []
    free = Limit(name, math.inf, nodes, conversions)
    used = sorted({sum(free.amounts(len(problem.conversions))[o] for o in choice.values()) for choice in choices})
    most = used[draw.randrange((len(used) + 1) // 2)] - (0.5 if draw.random() < 0.15 else 0.0)
    return Limit(name, max(most, 0.0), nodes, conversions)


@st.composite
def limited(draw: st.DrawFn, *, classes: int = 6, states: int = 1) -> Problem:
    source = random.Random(draw(st.integers(0, 2**32)))
    try:
        problem = parts(source, classes, states, source.randint(1, 2))
    except ExtractionError:
        reject()
    choices = enumerate_choices(problem.program)
    names = ("launches", "flops")[: source.randint(1, 2)]
    return problem.variant(limits=[limit(source, name, problem, choices) for name in names])


@st.composite
def remembering(draw: st.DrawFn, *, weighted: bool, classes: int = 6, states: int = 1) -> Problem:
    source = random.Random(draw(st.integers(0, 2**32)))
    try:
        problem = parts(source, classes, states, source.randint(1, 2))
    except ExtractionError:
        reject()
    sizes = {(c, s): source.choice(SIZES) for c in range(classes) for s in range(states)}
    aliases = {i: n.operands[0] for i, n in enumerate(problem.nodes) if n.operands and source.random() < 0.2}
    choices = enumerate_choices(problem.program)
    if len(choices) > 60 or any(len(c) > 7 for c in choices):
        reject()
    free = Memory(sizes, aliases)
    peaks = sorted({least_peak(problem, free, choice) for choice in choices})
    most = peaks[source.randrange((len(peaks) + 1) // 2)] - (0.5 if source.random() < 0.15 else 0.0)
    weight = source.choice([1e-7, 1e-6, 1e-5]) if weighted else 0.0
    memory = Memory(sizes, aliases, math.inf if weighted and source.random() < 0.6 else max(most, 0.0), weight)
    limits = [limit(source, "launches", problem, choices)] if source.random() < 0.4 else []
    return problem.variant(limits=limits, memory=memory)


def amounts(problem: Problem, choice: Choice) -> dict[str, float]:
    found = {
        limit.name: sum(limit.amounts(len(problem.conversions))[option] for option in choice.values())
        for limit in problem.limits
    }
    if problem.memory is not None:
        found[PEAK] = least_peak(problem, problem.memory, choice)
    return found


def bounds(problem: Problem) -> dict[str, float]:
    most = {limit.name: limit.most for limit in problem.limits}
    return most if problem.memory is None else most | {PEAK: problem.memory.most}


def optimum(problem: Problem) -> float:
    """By enumeration; infinite where no choice is within the limits."""
    weight = 0.0 if problem.memory is None else problem.memory.weight
    best = math.inf
    for choice in enumerate_choices(problem.program):
        used = amounts(problem, choice)
        if not any(exceeds(used[name], most) for name, most in bounds(problem).items()):
            cost = sum(problem.program.costs[option] for option in choice.values())
            best = min(best, cost + weight * used.get(PEAK, 0.0))
    return best
