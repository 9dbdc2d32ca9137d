"""Values that a plan holds in 16 bits on a GPU, of graphs that state 32: what is finite stays finite."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import eqsat
from eqsat.language.terms import DType, Plan, TensorType
from eqsat.runtime.backend import execute
from eqsat.runtime.cuda.program.lowering import program_of
from eqsat.runtime.kernels.templates.codegen import generate
from eqsat.runtime.kernels.view import View
from eqsat.runtime.programs.arena import arrange
from eqsat.testing.cuda.host import HostMachine
from tests.support.cuda_groups import GroupBuilder
from tests.support.guarded import run

LARGEST = {"float16": 65504.0, "bfloat16": float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)}
#: The least float32 is what masks of attention are filled with; bfloat16 would round it to minus infinity.
NUMBERS = [1.0, -65504.0, 65519.0, 65521.0, 1e9, -1e9, 3.4028234e38, -3.4028234e38, np.inf, -np.inf, np.nan, 1e-3]


def stored(op: str, stated: str, held: str, values: np.ndarray) -> np.ndarray:
    """The results of an operator in a kernel, of a type that the graph states, in the type that they are held in."""
    one = GroupBuilder()
    x = one.operand("x", TensorType(DType(stated), values.shape), values)
    attrs = {"axes": (1,), "keepdims": False} if op.startswith("reduce") else {}
    made = one.node(op, *[x] * (2 if op == "add" else 1), **attrs)
    view = View.of(made, DType(held), one.types[made].static)
    source = generate(one.group({made: view}))
    assert source is not None
    return run(source, {x: (one.views[x], one.arrays[x])}, {made: view})[made]


@pytest.mark.parametrize("held", LARGEST)
@pytest.mark.parametrize("op", ["identity", "neg", "reduce_max"])
def test_numbers_beyond_the_type_are_its_largest_and_infinities_stay(op, held):
    """By an element, and as the result of a row."""
    values = np.array(NUMBERS, np.float32)
    made = stored(op, "float32", held, values[:, None] if op.startswith("reduce") else values).astype(np.float64)
    exact = -values if op == "neg" else values
    wanted = np.where(np.isfinite(exact), exact.clip(-LARGEST[held], LARGEST[held]), exact)
    np.testing.assert_array_equal(made, wanted.astype(DType(held).numpy).astype(np.float64))
    assert np.isfinite(made).tolist() == np.isfinite(values).tolist()


def test_a_graph_that_states_float16_overflows_as_its_operators_do():
    made = stored("add", "float16", "float16", np.array([6e4, -6e4, 1.0], np.float16))
    np.testing.assert_array_equal(made, np.array([np.inf, -np.inf, 2.0], np.float16))


def test_a_query_from_which_a_mask_hides_all_keys_has_numbers():
    """The mask is an input, small on the data that the choice was made on, and the least float32 at a run.

    In float32 that query has the mean of all values, since its scores are lost beside the mask; in float16 these count,
    and the shares are of them.
    """
    rng = np.random.default_rng(0)
    g = eqsat.Graph("attention")
    x, mask = g.input("x", (2, 64, 128)), g.input("mask", (2, 1, 64, 64))

    def heads(value):
        w = g.constant((rng.standard_normal((128, 128)) / 11).astype(np.float32))
        return (value @ w).reshape(2, 64, 4, 32).transpose(0, 2, 1, 3)

    q, k, v = heads(x), heads(x), heads(x)
    shares = eqsat.softmax((q @ k.transpose(0, 1, 3, 2)) * 0.18 + mask, axis=-1)
    g.output("y", (shares @ v).transpose(0, 2, 1, 3).reshape(2, 64, 128))
    graph = g.build()
    feeds = {"x": rng.standard_normal((2, 64, 128)).astype(np.float32), "mask": np.zeros((2, 1, 64, 64), np.float32)}
    options = {"precision": "float16", "limits": {"error": 0.05}, "objective": {"bytes": 1.0}}
    result = eqsat.optimize(
        graph, device="nvidia-h200", measure=False, cache=False, calibration=[feeds, feeds], **options
    )
    assert isinstance(result.plan, Plan)
    held = {
        one.state.precision
        for step in result.plan.steps
        for one in getattr(step, "operands", ())
        if one.value == "mask"
    }
    assert held == {"float16"}
    feeds["mask"][:, :, 3, :] = np.finfo(np.float32).min
    feeds["mask"][:, :, 5, 9:] = np.finfo(np.float32).min
    program = program_of(result.plan)
    made = HostMachine(program, arrange(program)).run(feeds)["y"]
    wanted = execute(graph, feeds, "numpy")["y"]
    others = np.delete(np.arange(64), 3)
    assert np.linalg.norm((made - wanted)[:, others]) <= 0.01 * np.linalg.norm(wanted[:, others])
    unmasked = execute(graph, {**feeds, "mask": np.zeros_like(feeds["mask"])}, "numpy")["y"]
    np.testing.assert_allclose(made[:, 3], unmasked[:, 3], atol=5e-3)
