"""Kernels as plans of their own: the states, precisions and arithmetic of a key are those of the plan."""

import numpy as np
import pytest

from eqsat.costs.kernels.fusion import FUSED, FusedKey
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.kernels.keylist import read_keys, write_keys
from eqsat.costs.measuring.kernel import planned, runs_nothing
from eqsat.errors import CostError
from eqsat.language.terms import PLAIN, Held, State


def of(text):
    return planned(FusedKey.parse(text) if FUSED in text else OpKey.parse(text))


def test_a_plain_kernel_is_a_plain_plan_with_its_constants_as_weights():
    made = of("matmul {} float32[2, 8] =float32[8, 4] ; relu {} %0:float32[2, 4]")
    (kernel,) = made.plan.steps
    assert kernel.nodes == ("t0_0", "y0")
    assert kernel.operands == (Held("x0_0", PLAIN), Held("w0_1", PLAIN))
    assert made.plan.boundary == {}
    assert made.inputs["x0_0"].shape == (2, 8)
    assert list(made.plan.graph.constants) == ["w0_1"]
    # Both signs in products: what multiplies draws power by the bits that change.
    weights = made.plan.graph.constants["w0_1"].array
    assert {float(s) for s in np.unique(np.sign(weights))} == {-1.0, 1.0}
    assert np.abs(weights).min() >= 0.9


def test_layouts_are_the_states_of_inputs_and_results_and_inputs_come_as_they_are_stored():
    made = of("relu {} float32[1, 4, 6, 5]@nhwc -> @nhwc")
    assert made.plan.boundary == {"x0_0": State("nhwc"), "y0": State("nhwc")}
    assert made.inputs["x0_0"].shape == (1, 6, 5, 4)
    assert made.plan.graph.type("x0_0").static == (1, 4, 6, 5)
    made = of("matmul {} float32[2, 8] =float32[8, 4]@column")
    assert made.plan.steps[0].operands[1] == Held("w0_1", State("column"))


@pytest.mark.parametrize(
    ("text", "operand", "result"),
    [
        ("matmul {} float16[2, 8] =float16[8, 4]", "", ""),
        ("matmul {} float16[2, 8] =float16[8, 4] -> float32", "float16", ""),
        ("matmul {} float16[2, 8] =float16[8, 4] -> float32 ; relu {} %0:float32[2, 4]", "float16", ""),
    ],
)
def test_a_product_that_keeps_its_sums_is_stated_in_float32_with_operands_held_lower(text, operand, result):
    made = of(text)
    (kernel,) = made.plan.steps
    assert {held.state.precision for held in kernel.operands} == {operand}
    assert kernel.results[0].state.precision == result
    stated = made.plan.graph.type("x0_0").dtype.value
    assert stated == ("float32" if operand else "float16")
    assert made.inputs["x0_0"].dtype == np.float16


def test_arithmetic_is_that_of_the_kernel():
    assert of("matmul {} float32[2, 8] =float32[8, 4] by tf32").plan.steps[0].arithmetic == "tf32"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('softmax {"axis":1} float32[2, 8]@column -> @column', "softmax has no kernel for these layouts"),
        ("wave {} float32[2]", "wave cannot be measured alone"),
        ("relu {} float32[2] float32[2]", "no such application"),
        ("relu {} float32[2, 4] ; relu {} %0:float32[3, 4]", "relu does not make the operand 0 of relu"),
    ],
)
def test_what_nothing_runs_is_refused(text, message):
    with pytest.raises(CostError, match=message):
        of(text)


def test_indices_lie_within_what_they_index():
    made = of('gather {"axis":0} =float32[5, 3] int64[40]')
    (indices,) = made.inputs.values()
    assert (indices.min(), indices.max()) == (0, 4)


def test_what_strides_can_say_runs_nothing_and_what_fails_is_not_left_out():
    assert runs_nothing(OpKey.parse('slice {"axes":[1],"ends":[2],"starts":[0],"steps":[1]} float32[3, 4]'))
    assert not runs_nothing(OpKey.parse("relu {} float32[3]"))
    assert not runs_nothing(OpKey.parse("wave {} float32[3]"))


def test_a_list_of_keys_reads_as_it_is_written(tmp_path):
    keys = (
        OpKey.parse("relu {} float32[3]"),
        FusedKey.parse("relu {} float32[2, 4] ; tanh {} %0:float32[2, 4]"),
        OpKey.parse("matmul {} float16[2, 8] =float16[8, 4]@column -> float32@column"),
    )
    path = tmp_path / "keys.txt"
    path.write_text(write_keys([*keys, keys[0]]))
    assert read_keys(path) == keys
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(CostError, match="the file cannot be read: no UTF-8 text"):
        read_keys(path)
