"""Weights of the same bytes and other shapes in one block of a GPU's memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import eqsat
from eqsat.language.graphs.builder import Builder
from eqsat.language.onnx.read.importer import load
from eqsat.language.terms import Constant, Graph
from eqsat.runtime.cuda.program.lowering import program_of
from eqsat.runtime.programs.arena import arrange, check
from eqsat.testing.cuda.host import HostMachine

CELLS = (np.random.default_rng(0).standard_normal(4096) / 8).astype(np.float32)
BYTES = CELLS.nbytes


def products(*weights: Any) -> Graph:
    """The product of an input with each weight, whose rows fit it."""
    g = Builder("products")
    for index, weight in enumerate(weights):
        x = g.input(f"x{index}", (2, weight.shape[0]))
        g.output(f"y{index}", x @ g.constant(weight, name=f"w{index}"))
    return g.build()


def checked(graph: Graph) -> int:
    """Bytes of the weights of a graph, whose outputs are as its references have them."""
    program = program_of(graph)
    arrangement = arrange(program)
    check(program, arrangement)
    rng = np.random.default_rng(1)
    inputs = {n: rng.standard_normal(graph.type(n).static).astype(np.float32) for n in graph.inputs}
    made = HostMachine(program, arrangement).run(inputs)
    wanted = eqsat.runtime.backend.select("numpy").compile(graph).run(inputs)
    for name, array in wanted.items():
        np.testing.assert_allclose(made[name], array, rtol=2e-5, atol=2e-5)
    return program.memory().weights


def test_the_same_bytes_in_other_shapes_are_one_block() -> None:
    shapes = ((64, 64), (32, 128), (128, 32))
    assert checked(products(*(CELLS.reshape(shape) for shape in shapes))) == BYTES


def test_blocks_that_differ_in_one_element_are_two() -> None:
    """An element that no sample looks at."""
    other = CELLS.copy()
    other[1001] += 1
    assert checked(products(CELLS.reshape(64, 64), other.reshape(32, 128))) == 2 * BYTES


def test_zeros_and_nan_are_told_apart_by_their_bits() -> None:
    def doubled(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> int:
        g = Builder("sums")
        for index, weight in enumerate((first, second)):
            x = g.input(f"x{index}", weight.shape)
            g.output(f"y{index}", x + g.constant(weight, name=f"w{index}"))
        return program_of(g.build()).memory().weights

    zeros, quiet, other = np.zeros(512, np.float32), np.full(512, np.nan, np.float32), np.empty(512, np.float32)
    other.view(np.uint32)[:] = 0x7FC00001
    assert doubled(zeros, -zeros.reshape(8, 64)) == 2 * zeros.nbytes
    assert doubled(quiet, other.reshape(8, 64)) == 2 * zeros.nbytes
    assert doubled(quiet, quiet.reshape(8, 64)) == zeros.nbytes


def test_element_types_are_told_apart() -> None:
    bits = CELLS.view(np.int32)
    g = Builder("types")
    g.output("y", g.input("x", (64, 64)) + g.constant(CELLS.reshape(64, 64), name="w"))
    g.output("z", g.input("i", (32, 128), dtype="int32") + g.constant(bits.reshape(32, 128), name="v"))
    assert program_of(g.build()).memory().weights == 2 * BYTES


def test_a_weight_that_is_handed_out_is_its_own() -> None:
    g = Builder("handed out")
    g.output("y", g.input("x", (2, 64)) @ g.constant(CELLS.reshape(64, 64), name="w"))
    g.output("v", g.constant(CELLS.reshape(32, 128), name="v"))
    assert checked(g.build()) == 2 * BYTES


def test_a_weight_that_a_caller_may_replace_is_an_input() -> None:
    """An initializer that is an input too: its default has the bytes of another."""
    tensors = [
        numpy_helper.from_array(CELLS.reshape(shape), name) for name, shape in (("w", (64, 64)), ("v", (32, 128)))
    ]
    inputs = [("x", [2, 64]), ("z", [2, 32]), ("v", [32, 128])]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("MatMul", ["z", "v"], ["b"])],
        "replaced",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, n]) for name, n in (("a", 64), ("b", 128))],
        tensors,
    )
    found = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert found.inputs == ("x", "z", "v")
    assert checked(found) == BYTES


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        (np.float32([0.0, 1]), np.float32([0.0, 1]), True),
        (np.float32([0.0, 1]), np.float32([-0.0, 1]), False),
        (np.float32([np.nan]), np.float32([np.nan]), True),
        (np.uint32([0x7FC00000]).view(np.float32), np.uint32([0x7FC00001]).view(np.float32), False),
        (np.float16([1, 2]), np.float16([1, 2]).view(np.int16), False),
        (np.float32([[1, 2]]), np.float32([1, 2]), False),
        (np.array(["a", "b"], object), np.array(["a", "b"], object), True),
        (np.array(["a", "b"], object), np.array(["a", "c"], object), False),
    ],
)
def test_constants_are_one_where_type_and_bytes_agree(one: Any, two: Any, same: bool) -> None:
    assert Constant.of(one).same_as(Constant.of(two)) is same
