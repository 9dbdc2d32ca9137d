"""Which operators the runtime for GPUs is taken to run as one kernel after a convolution."""

import pytest

from eqsat.costs.kernels.fusion import FusedOperator, runs_as_one
from eqsat.language.terms import PLAIN, Implementation, State, TensorType


def members(image, *, channels=64, group=1, arithmetic="", filters=PLAIN, activation="none"):
    """A convolution, a tensor added to it, and ReLU, with images in one state."""
    x, w = TensorType.of("float32", (1, channels, 8, 8)), TensorType.of("float32", (channels, channels, 3, 3))
    y = TensorType.of("float32", (1, channels, 8, 8))
    attrs = {"group": group, "activation": activation}
    way = Implementation((image, filters), image, arithmetic)
    conv = FusedOperator("conv", attrs, (x, w), (y,), (False, True), way, (None, None))
    add = FusedOperator("add", {}, (y, y), (y,), (False, False), Implementation((image, image), image), (0, None))
    relu = FusedOperator("relu", {}, (y,), (y,), (False,), Implementation((image,), image), (1,))
    return conv, add, relu


@pytest.mark.parametrize(
    ("given", "one"),
    [
        (members(State("nhwc", "float16"), filters=State("row", "float16")), True),
        (members(State("nhwc", "bfloat16"), filters=State("row", "bfloat16")), True),
        (members(State("nhwc"), arithmetic="tf32"), True),
        (members(State("nhwc")), False),
        (members(State("row", "float16"), filters=State("row", "float16")), False),
        (members(State("nhwc", "float16"), filters=State("row", "float16"), channels=12), False),
        (members(State("nhwc", "float16"), filters=State("row", "float16"), group=2), False),
        (members(State("nhwc", "float16"), filters=State("row", "float16"), activation="relu"), False),
    ],
)
def test_a_tensor_is_added_within_a_convolution_on_tensor_cores_with_channels_last(given, one):
    assert runs_as_one(given) is one
    assert runs_as_one(given[:2]) is one


def test_nothing_but_an_activation_comes_after_what_is_added():
    conv, add, relu = members(State("nhwc", "float16"), filters=State("row", "float16"))
    again = FusedOperator("add", {}, add.operands, add.results, add.const, add.implementation, (1, None))
    assert not runs_as_one((conv, add, again))
    assert not runs_as_one((conv, relu, again))
