"""Random graphs planned with layouts, precisions and fused kernels: at least cost, and computing the same."""

import math
from dataclasses import replace
from random import Random

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, example, given, reject, settings
from hypothesis import strategies as st

import eqsat
from eqsat.certify.stated import stated_difference
from eqsat.costs.kernels.implementations import Choices
from eqsat.costs.kernels.precision import POLICIES
from eqsat.costs.model.model import CostModel
from eqsat.egraph.encode import encode
from eqsat.egraph.saturate import Saturator
from eqsat.egraph.saturation import Limits
from eqsat.egraph.snapshot import Snapshot, snapshot
from eqsat.extract import Problem, solve
from eqsat.extract.problem.program import ExtractionProgram, total, unfounded
from eqsat.extract.solvers.restricted import Restricted
from eqsat.extract.tensors import tensors
from eqsat.extract.tensors.assembly import assemble
from eqsat.extract.tensors.tensors import tensor_problem
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.builder import Builder
from eqsat.language.graphs.lower import lower
from eqsat.language.ops import OPS
from eqsat.language.terms import LAYOUTS, Constant, Graph, State
from eqsat.rewrites.rules.loader import load_rules
from eqsat.testing import graphs

OPERATORS = ["add", "mul", "relu", "exp", "matmul", "gemm", "transpose", "conv", "max_pool", "softmax", "concat", "neg"]
OPERATORS += ["slice", "split", "pad", "where", "reshape", "clip"]
COMMON = settings(deadline=None, suppress_health_check=list(HealthCheck))
DEVICE = "nvidia-h200"


def frozen(graph: Graph, rounds: int) -> tuple[Graph, Snapshot]:
    encoding = encode(graph)
    if rounds:
        Saturator(encoding.egraph, load_rules(), Limits(nodes=400, rounds=rounds)).run()
    return encoding.graph, snapshot(encoding)


def least(program: ExtractionProgram, most: int = 20_000) -> float:
    """The least cost over every closed acyclic choice; rejects a program with too many."""
    best, seen = math.inf, 0

    def extend(choice: dict[int, int], waiting: tuple[int, ...]) -> None:
        nonlocal best, seen
        open_ = [goal for goal in waiting if goal not in choice]
        if not open_:
            seen += 1
            if seen > most:
                reject()
            if not unfounded(program, choice):
                best = min(best, total(program, choice))
            return
        for option in program.by_goal[open_[0]]:
            if sum(program.costs[o] for o in choice.values()) + program.costs[option] < best:
                extend({**choice, open_[0]: option}, (*open_[1:], *program.needs[option]))

    extend({}, tuple(program.roots))
    return best


@settings(COMMON, max_examples=60)
@given(graphs(OPERATORS, max_nodes=3, dtypes=("float32",)), st.sampled_from(["exact", "mixed"]))
def test_the_plan_of_a_small_graph_costs_least(graph, precision):
    original, snap = frozen(graph, 0)
    model = CostModel(DEVICE)
    extraction = tensor_problem(snap, model, choices=Choices(("row", "column", "nhwc"), POLICIES[precision]))
    solution = solve(extraction.problem, time_limit=60)
    solution.check(extraction.problem)
    assert solution.status == "optimal"
    assert math.isclose(solution.cost, least(extraction.problem.program), rel_tol=1e-8, abs_tol=1e-18)
    best = assemble(extraction, solution, original)
    # Bytes of derived weights count a little, so that ties go to the smaller.
    assert math.isclose(math.fsum(c.seconds for c in best.costs), solution.cost, rel_tol=1e-6, abs_tol=1e-11)


def of_ones() -> Graph:
    """A graph of which rules find out that a part is constant, so that its conversions have nothing to convert."""
    builder = Builder("drawn")
    ones = eqsat.softmax(builder.input("in1", (3, 3)) @ builder.input("in2", (3, 1)), axis=1)
    parts = [ones, builder.constant(np.full((2, 1), 0.5, np.float32)), builder.constant(np.ones((3, 1), np.float32))]
    piece = builder.apply("slice", eqsat.concat(parts, axis=0), axes=(0,), starts=(1,), ends=(5,), steps=(1,))
    builder.output("sum", piece + builder.input("in3", (4, 1)))
    return builder.build()


@settings(COMMON, max_examples=120, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@example(of_ones(), "bfloat16", 2, False)
@example(of_ones(), "mixed", 4, False)
@given(
    graphs(OPERATORS, min_nodes=2, max_nodes=6, dtypes=("float32",)),
    st.sampled_from(["exact", "mixed", "bfloat16"]),
    st.integers(0, 2**16),
    st.booleans(),
)
def test_any_plan_computes_what_its_graph_does(graph, precision, seed, bound):
    """Prices are random, so that every state and kernel is chosen somewhere."""
    original, snap = frozen(coarse(graph), 2)
    names = [*original.inputs, *original.outputs]
    boundary = {}
    if bound:
        type = original.type(original.inputs[0]) if original.inputs else None
        if type is not None and LAYOUTS["column"].fits(type) and names.count(original.inputs[0]) == 1:
            boundary[original.inputs[0]] = State("column")
    model = CostModel(DEVICE)
    choices = Choices(("row", "column", "nhwc", "packed"), POLICIES[precision])
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch:
        # What saves nothing at the model's prices may save something at others.
        patch.setattr(tensors, "in_useful_layouts", lambda kernels, given: list(range(len(kernels.nodes))))
        extraction = tensor_problem(snap, model, choices=choices, boundary=boundary)
    priced = repriced(extraction.problem, Random(seed))
    solution = solve(priced, time_limit=20)
    solution.check(priced)
    best = assemble(extraction, solution, original)
    # What constants come to when they are folded is no longer the same in any precision.
    plan = replace(best.plan, graph=coarse(best.plan.graph))
    made = lower(plan)
    for node in made.nodes:
        if node.op in OPS and all(v is None or made.type(v).shape is not None for v in node.inputs):
            types = OPS[node.op].result_types([None if v is None else made.type(v) for v in node.inputs], node.attrs)
            assert [t.dtype for t in types] == [made.type(v).dtype for v in node.outputs if v][: len(types)]
    # In float64 throughout, with weights that are the same in any precision, only a wrong graph makes a difference.
    with np.errstate(all="ignore"):
        assert stated_difference(plan.graph, made, boundary, {}, 0, Floats(wide=True)) < 1e-6


@settings(COMMON, max_examples=60)
@given(graphs(OPERATORS, min_nodes=2, max_nodes=5, dtypes=("float32",)), st.integers(0, 2**16))
def test_the_row_major_choice_is_one_of_the_whole_problem_which_costs_no_more(graph, seed):
    _, snap = frozen(graph, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensors, "in_useful_layouts", lambda kernels, given: list(range(len(kernels.nodes))))
        extraction = tensor_problem(
            snap, CostModel(DEVICE), choices=Choices(("row", "column", "nhwc"), POLICIES["mixed"])
        )
    extraction = replace(extraction, problem=repriced(extraction.problem, Random(seed)))
    rows = Restricted(extraction)
    first = rows.lifted(solve(rows.problem))
    first.check(extraction.problem)
    assert {extraction.states[state].layout for _, state in first.chosen} <= {"row"}
    assert solve(extraction.problem, time_limit=0.0, known=[first]).cost <= first.cost * (1 + 1e-9)
    assert solve(extraction.problem, known=[first]).cost <= first.cost * (1 + 1e-9)


def coarse(graph: Graph) -> Graph:
    """The graph with constants that bfloat16 and float16 hold exactly."""
    constants = {}
    for name, constant in graph.constants.items():
        if constant.type.dtype.is_float:
            rounded = np.clip(constant.array, -8, 8).astype(np.float16).astype(ml_dtypes.bfloat16)
            constants[name] = Constant.of(rounded.astype(np.float32))
        else:
            constants[name] = constant
    return replace(graph, constants=constants)


@pytest.mark.parametrize("seed", [0, 1, 2, 7, 64, 88, 90, 139, 143, 158, 170])
def test_a_piece_of_a_split_in_one_state_may_be_a_slice_of_its_own_in_another(seed: int) -> None:
    g = Builder("pieces")
    parts = eqsat.split(g.input("x", (3, 2, 2)), 3, axis=0)
    for name, part in zip("abc", parts, strict=True):
        g.output(name, part)
    g.output("again", parts[1])
    original, snap = frozen(g.build(), 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensors, "in_useful_layouts", lambda kernels, given: list(range(len(kernels.nodes))))
        choices = Choices(("row", "column", "nhwc"), POLICIES["mixed"])
        extraction = tensor_problem(snap, CostModel(DEVICE), choices=choices, boundary={"again": State("column")})
    best = assemble(extraction, solve(repriced(extraction.problem, Random(seed))), original)
    assert stated_difference(best.plan.graph, lower(best.plan), best.plan.boundary, {}, 0) < 1e-3


def repriced(problem: Problem, rng: Random) -> Problem:
    """The problem with its costs drawn anew, many of them nothing."""
    nodes = [replace(n, cost=max(rng.uniform(-0.2, 1), 0.0)) for n in problem.nodes]
    conversions = [replace(c, cost=max(rng.uniform(-0.2, 1), 0.0)) for c in problem.conversions]
    return Problem(nodes, problem.roots, conversions, problem.states)
