"""Whole graphs and plans as GPU programs, run on the processor: launches, views and memory, against the reference."""

import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from eqsat.costs.kernels.implementations import Choices
from eqsat.costs.kernels.precision import POLICIES
from eqsat.costs.model.model import CostModel
from eqsat.extract import solve
from eqsat.extract.tensors import tensors
from eqsat.extract.tensors.assembly import assemble
from eqsat.extract.tensors.tensors import tensor_problem
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.interpret import run
from eqsat.language.ops import OPS
from eqsat.language.terms.state import LAYOUTS, State
from eqsat.runtime.cuda.program.lowering import program_of
from eqsat.runtime.cuda.program.products import LIBRARIES
from eqsat.runtime.programs.arena import arrange, check
from eqsat.testing import feeds, graphs
from eqsat.testing.cuda.host import HostMachine
from tests.property.costs.test_states_random import OPERATORS, coarse, frozen, repriced

#: A rounding more or less moves what these make by far, or in a fused kernel where nothing is rounded on the way.
STEPS = {"floor", "ceil", "round", "sign", "equal", "less", "less_equal", "greater", "greater_equal", "mod", "isinf"}
STEPS |= {"isnan", "argmax", "argmin", "topk", "hardmax", "cast", "trunc", "thresholded_relu", "shrink", "and_", "or_"}
STEPS |= {"xor", "not_", "where", "bit_shift", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"}
#: What grows or shrinks so fast that a comparison says nothing.
STEEP = {"exp", "pow", "sinh", "cosh", "tan", "acosh", "atanh", "reduce_prod", "reciprocal", "div", "log"}
STEEP |= {"reduce_log_sum"}
SHIPPED = [name for name, s in OPS.items() if s.sample is not None and not s.random and s.is_shipped]
ALL = sorted(set(SHIPPED) - STEPS - STEEP)
COMMON = settings(
    deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.reuse, Phase.generate], derandomize=True
)


def difference(made, wanted):
    """‖made − wanted‖ / ‖wanted‖ where the latter is finite."""
    made, wanted = np.asarray(made, np.float64), np.asarray(wanted, np.float64)
    assert made.shape == wanted.shape
    kept = np.isfinite(wanted)
    if not kept.any():
        return 0.0
    made, wanted = made[kept], wanted[kept]
    return float(np.linalg.norm(made - wanted) / max(np.linalg.norm(wanted), 1e-30)) if (made != wanted).any() else 0.0


def emulated(program, inputs):
    arrangement = arrange(program)
    check(program, arrangement)
    return HostMachine(program, arrangement).run(inputs)


def compare(graph, made, inputs, slack):
    with np.errstate(all="ignore"):
        wide = run(graph, inputs, Floats(wide=True))
        plain = run(graph, inputs, Floats())
    for name, wanted in wide.items():
        type = graph.type(graph.outputs[name])
        assert made[name].dtype == type.dtype.numpy
        if not type.dtype.is_float:
            assert (np.asarray(made[name]) == np.asarray(plain[name])).all()
            continue
        own = difference(plain[name], wanted)
        if math.isfinite(own):  # else it overflows where the graph says that it is rounded
            assert difference(made[name], wanted) <= slack + 8 * own, name


@settings(COMMON, max_examples=200)
@given(st.data(), st.sampled_from(["float32", "float16", "float64"]), st.sampled_from([LIBRARIES, frozenset()]))
def test_a_graph_of_any_operators_computes_what_its_references_do(data, dtype, libraries):
    graph = data.draw(graphs(ALL, min_nodes=1, max_nodes=6, dtypes=(dtype,)))
    inputs = data.draw(feeds(graph))
    made = emulated(program_of(graph, libraries=libraries), inputs)
    compare(graph, made, inputs, {"float16": 4e-3, "float32": 1e-5, "float64": 1e-12}[dtype])


@settings(COMMON, max_examples=120)
@given(
    graphs(OPERATORS, min_nodes=2, max_nodes=6, dtypes=("float32",)),
    st.sampled_from(["exact", "mixed", "bfloat16"]),
    st.integers(0, 2**16),
    st.data(),
)
def test_a_plan_with_any_states_computes_what_its_graph_does(graph, precision, seed, data):
    """Prices are random, so that every state and kernel that a GPU knows is chosen somewhere."""
    original, snap = frozen(coarse(graph), 2)
    choices = Choices(("row", "column", "nhwc"), POLICIES[precision])
    ends = [n for n in (*original.inputs, *original.outputs) if n not in original.inputs or n not in original.outputs]
    held = {n: LAYOUTS["column"].fits(original.type(original.outputs.get(n, n))) for n in ends}
    boundary = {n: State("column") for n in ends if held[n] and data.draw(st.booleans(), label=n)}
    with pytest.MonkeyPatch.context() as patch:
        # What saves nothing at the model's prices may save something at others.
        patch.setattr(tensors, "in_useful_layouts", lambda kernels, given: list(range(len(kernels.nodes))))
        extraction = tensor_problem(snap, CostModel("nvidia-h200"), choices=choices, boundary=boundary)
    priced = repriced(extraction.problem, Random(seed))
    best = assemble(extraction, solve(priced, time_limit=20), original)
    plan = replace(best.plan, graph=coarse(best.plan.graph))
    program = program_of(plan)
    inputs = data.draw(feeds(plan.graph))
    made = emulated(program, {n: a.swapaxes(-1, -2) if n in boundary else a for n, a in inputs.items()})
    states = [h.state for k in plan.kernels for h in (*k.operands, *k.results)]
    states += [s for c in plan.conversions for s in (c.source, c.target)]
    lowered = any(s.precision for s in states) or any(k.arithmetic for k in plan.kernels)
    slack = {"exact": 1e-5, "mixed": 2e-2, "bfloat16": 0.2}[precision if lowered else "exact"]
    with np.errstate(all="ignore"):
        wide = run(plan.graph, inputs, Floats(wide=True))
    for name, wanted in wide.items():
        if np.isfinite(wanted).all() and np.abs(wanted).max(initial=0) < 1e4:
            found = made[name].swapaxes(-1, -2) if name in boundary else made[name]
            assert difference(found, wanted) <= slack
