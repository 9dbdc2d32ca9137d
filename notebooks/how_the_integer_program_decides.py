# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # How the integer program decides
# After saturation, an e-graph has many forms of each tensor. To select one of them is a separate
# problem: *extraction*. This notebook treats it without tensors, with costs alone: why greedy
# choice is wrong, why cycles are excluded, how states and limits are expressed, and what the
# bound proves.

# %%
# %matplotlib inline
import itertools
import json
import math
import random
import time

import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import Bounds, LinearConstraint, milp

from eqsat.errors import ExtractionError
from eqsat.extract import Conversion, Limit, Node, Problem, solve
from eqsat.extract.problem.gym import parse_gym
from eqsat.extract.limited.pareto import front, plot

# %% [markdown]
# ## The problem
# A `Node` computes an e-class from others at a cost: it has an e-class, operands as pairs of
# e-class and state, and a cost. Here an output needs two tensors, *left* and *right*. Each can be
# computed alone for 5, or for 1 from a shared tensor that costs 1, and 5 for its source.

# %%
OUTPUT, LEFT, RIGHT, SHARED, SOURCE = range(5)
nodes = [
    Node(OUTPUT, ((LEFT, 0), (RIGHT, 0)), 1.0, name="output"),
    Node(LEFT, (), 5.0, name="left alone"),
    Node(LEFT, ((SHARED, 0),), 1.0, name="left from shared"),
    Node(RIGHT, (), 5.0, name="right alone"),
    Node(RIGHT, ((SHARED, 0),), 1.0, name="right from shared"),
    Node(SHARED, ((SOURCE, 0),), 1.0, name="shared"),
    Node(SOURCE, (), 5.0, name="source"),
]
problem = Problem(nodes, roots=[(OUTPUT, 0)])

# %% [markdown]
# ## By tree and by DAG
# There are four choices. In a *tree*, an operand is paid for by each of its readers; in a *DAG*,
# it is paid for once. The DAG cost is the cost of a run.


# %%
def tree_cost(problem, chosen, goal):
    node = problem.nodes[chosen[goal]]
    return node.cost + sum(tree_cost(problem, chosen, operand) for operand in node.operands)


costs = {}
for left, right in itertools.product((1, 2), (3, 4)):
    chosen = {(OUTPUT, 0): 0, (LEFT, 0): left, (RIGHT, 0): right, (SHARED, 0): 5, (SOURCE, 0): 6}
    used = {0, left, right} | ({5, 6} if 2 in (left, right) or 4 in (left, right) else set())
    by_tree = tree_cost(problem, chosen, (OUTPUT, 0))
    by_dag = sum(nodes[index].cost for index in used)
    costs[nodes[left].name, nodes[right].name] = by_tree, by_dag
    print(
        f"{nodes[left].name:>17}, {nodes[right].name:<18} tree {by_tree:4.0f}   DAG {by_dag:4.0f}"
    )

# %% [markdown]
# The first line is the cheapest tree, the last line the cheapest DAG. Greedy choice decides on
# tensors one by one, from the bottom up: for *left* by itself, 5 is less than 1 + 1 + 5. It may
# count a tensor as shared by all that can read it, which makes the shared tensor cheaper, but not
# its source, which is read once. The integer program decides on all at once.

# %%
for extractor in ("greedy", "ilp"):
    found = solve(problem, extractor=extractor)
    names = ", ".join(nodes[index].name for index in found.chosen.values())
    print(f"{extractor:>6}: cost {found.cost:.0f}, bound {found.lower_bound:.0f}: {names}")
assert min(tree for tree, _ in costs.values()) == costs["left alone", "right alone"][0]
assert solve(problem, extractor="greedy").cost == 11
assert solve(problem).cost == 9 == min(dag for _, dag in costs.values())

# %% [markdown]
# ## The program
#
# One variable $x_n \in \{0, 1\}$ for each node, 1 where it is chosen:
#
# $$\min \sum_n c_n x_n \quad\text{so that}\quad \sum_{n \in r} x_n \ge 1
# \;\text{ for each output } r, \qquad x_n \le \sum_{m \in d} x_m
# \;\text{ for each operand } d \text{ of } n.$$
# One constraint is still missing. We solve this program with SciPy:


# %%
def without_order(problem):
    """The least cost of a choice that may run in circles, and the nodes of that choice."""
    count = len(problem.nodes)
    provides = {}
    for index, node in enumerate(problem.nodes):
        provides.setdefault((node.eclass, node.state), []).append(index)
    rows = []
    for root in problem.roots:
        rows.append([float(i in provides[root]) for i in range(count)])
    lower = [1.0] * len(rows)
    for index, node in enumerate(problem.nodes):
        for operand in node.operands:
            rows.append([float(i in provides[operand]) - (i == index) for i in range(count)])
            lower.append(0.0)
    answer = milp(
        [node.cost for node in problem.nodes],
        constraints=LinearConstraint(np.array(rows), lower, np.inf),
        integrality=np.ones(count),
        bounds=Bounds(0, 1),
    )
    return answer.fun, [n.name for n, x in zip(problem.nodes, answer.x, strict=True) if x > 0.5]


least, names = without_order(problem)
print(least, names)
assert math.isclose(least, 9)

# %% [markdown]
# ## The missing constraint: no cycles
#
# E-graphs have cycles: a rule says that `a` is `transpose(b)`, and `b` is `transpose(a)`. This
# e-graph is given as JSON, in the common format of extraction benchmarks. `a` can be computed for
# 10.

# %%
document = {
    "nodes": {
        "compute a": {"eclass": "a", "children": [], "cost": 10},
        "transpose b": {"eclass": "a", "children": ["transpose a"], "cost": 1},
        "transpose a": {"eclass": "b", "children": ["compute a"], "cost": 1},
    },
    "root_eclasses": ["b"],
}
cyclic = parse_gym(json.dumps(document))
least, names = without_order(cyclic)
print(f"without order: cost {least:.0f}: {', '.join(names)}")
found = solve(cyclic)
right = [cyclic.nodes[index].name for index in found.chosen.values()]
print(f"eqsat: cost {found.cost:.0f}: {', '.join(right)}")
assert least == 2 and "compute a" not in names
assert found.cost == 11 and "compute a" in right

# %% [markdown]
# Two tensors that are transpositions of each other cost 2, and nothing computes them. eqsat adds
# constraints when a solution has a cycle: for a set of tensors $S$ on a cycle, a selected node
# must compute one of them from outside $S$,
#
# $$x_n \le \sum_{m \in S,\; m \text{ needs nothing of } S} x_m ,$$
# and all such constraints together admit exactly the choices without cycles.
#
# ## States
# A tensor may have several states: layouts and precisions. Then a node computes an e-class in a
# state, from operands in given states, and a `Conversion` converts one state to another. In this
# example, a tensor is cheaper to compute by rows, and its two readers are cheaper by columns. The
# conversion costs 3, and is paid for once.

# %%
ROW, COLUMN = range(2)
MADE, FIRST, SECOND, SUM = range(4)
variants = [
    Node(MADE, (), 4.0, ROW, "made by rows"),
    Node(MADE, (), 9.0, COLUMN, "made by columns"),
    Node(FIRST, ((MADE, ROW),), 5.0, ROW, "first reads rows"),
    Node(FIRST, ((MADE, COLUMN),), 2.0, ROW, "first reads columns"),
    Node(SECOND, ((MADE, ROW),), 5.0, ROW, "second reads rows"),
    Node(SECOND, ((MADE, COLUMN),), 2.0, ROW, "second reads columns"),
    Node(SUM, ((FIRST, ROW), (SECOND, ROW)), 1.0, ROW, "sum"),
]


def with_conversion(cost):
    """The problem where converting rows to columns has this cost."""
    return Problem(variants, [(SUM, ROW)], [Conversion(MADE, ROW, COLUMN, cost)], states=2)


for cost in (3.0, 5.5, 7.0):
    found = solve(with_conversion(cost))
    names = ", ".join(variants[index].name for index in found.chosen.values())
    paid = "with a conversion" if found.conversions else "without one"
    print(f"converting for {cost}: cost {found.cost}, {paid}: {names}")
assert len(solve(with_conversion(3.0)).conversions) == 1
assert not solve(with_conversion(7.0)).conversions

# %% [markdown]
# ## The bound
# A larger problem: seventy tensors with two nodes each, drawn at random. During the search, the
# solver has its best choice so far and a *lower bound* on the cost of any choice. When they meet,
# the choice is proved to be optimal; before, their distance is the *gap*.

# %%
draw = random.Random(1)
count = 70
drawn = []
for eclass in range(count):
    for _ in range(2):
        operands = tuple(
            (draw.randrange(max(0, eclass - 12), eclass), 0)
            for _ in range(draw.choice((1, 2, 2, 3)) if eclass else 0)
        )
        operands = () if eclass < 6 else operands
        drawn.append(Node(eclass, operands, round(draw.uniform(1, 10), 2)))
large = Problem(drawn, [(eclass, 0) for eclass in range(count - 3, count)])
trace = []
began = time.perf_counter()


def follow(cost, bound):
    trace.append((time.perf_counter() - began, cost, bound))


best = solve(large, time_limit=15.0, progress=follow)
greedy = solve(large, extractor="greedy")
print(f"greedy {greedy.cost:.2f}; integer program {best.cost:.2f}, bound {best.lower_bound:.2f}")
print(f"{best.status}, gap {100 * best.gap:.1f} %, {len(trace)} reports")
assert best.cost < greedy.cost
assert all(bound <= cost * (1 + 1e-9) for _, cost, bound in trace)

# %%
figure = Figure(figsize=(6, 3), layout="constrained")
axes = figure.subplots()
seconds, costs, bounds = zip(*trace, strict=True)
axes.step(seconds, costs, where="post", label="best choice")
axes.step(seconds, bounds, where="post", label="bound")
axes.fill_between(seconds, bounds, costs, step="post", alpha=0.15, label="gap")
axes.axhline(greedy.cost, color="0.6", linestyle=":", label="greedy")
axes.set(xlabel="seconds", ylabel="cost", ylim=(0, None))
axes.legend(frameon=False)
figure

# %% [markdown]
# Most of the time is spent on raising the bound: the best choice is found early, and the rest of
# the time is needed for the proof.
#
# ## Limits
# A `Limit` bounds a sum over the selected nodes: launches, bytes of weights, an error. Each node
# has an amount. Here is the first problem again, with at most three nodes:

# %%
few = problem.variant(limits=[Limit("launches", 3, [1.0] * len(nodes))])
found = solve(few)
print(f"at most 3: cost {found.cost:.0f}, {found.amounts['launches']:.0f} launches")
try:
    solve(problem.variant(limits=[Limit("launches", 2, [1.0] * len(nodes))]))
    refused = ""
except ExtractionError as error:
    refused = str(error)
print(f"at most 2: {refused}")
assert found.cost == 11
assert "3" in refused

# %% [markdown]
# With the limit, the greedy choice is the right one: it costs more, but takes two launches less.
#
# ## The front
# The *Pareto front* of two terms has the choices that no other choice beats in one term without
# being worse in the other. `front` solves the program repeatedly, for the least cost under
# tighter and tighter limits. A limit of infinity only computes the sum.

# %%
added = problem.variant(limits=[Limit("launches", math.inf, [1.0] * len(nodes))])
both = front(added, y="launches")
for point in both.points:
    names = ", ".join(nodes[index].name for index in point.solution.chosen.values())
    print(f"cost {point.x:.0f}, {point.y:.0f} launches: {names}")
assert [(point.x, point.y) for point in both.points] == [(9, 5), (11, 3)]
assert both.is_complete

# %% [markdown]
# The same for thirty of the tensors drawn before. Each point is proved: no choice is better in one
# term without being worse in the other.

# %%
part = [node for node in drawn if node.eclass < 30]
roots = [(eclass, 0) for eclass in range(27, 30)]
counted = Problem(part, roots, limits=[Limit("launches", math.inf, [1.0] * len(part))])
staircase = front(counted, y="launches")
assert staircase.is_complete and len(staircase.points) > 1
assert all(a.x < b.x and a.y > b.y for a, b in itertools.pairwise(staircase.points))
plot(staircase)

# %% [markdown]
# For a model, `eqsat.pareto` does the same over all graphs of its e-graph: [measured costs
# and layouts](measured_costs_and_layouts.ipynb) computes the front of time and error.
