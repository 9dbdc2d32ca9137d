"""Graphs at the edges of what programs for a GPU take: run on the processor, against the references in float64."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import eqsat
from eqsat.errors import BackendError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.builder import Builder
from eqsat.language.graphs.interpret import run
from eqsat.language.onnx.read.importer import load
from eqsat.runtime.cuda.program.lowering import program_of
from eqsat.runtime.programs.arena import arrange, check
from eqsat.testing.cuda.host import HostMachine

X = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((8, 4)).astype(np.float32)


def agrees(build, *, by=None, **inputs):
    """Runs what `build` makes of the inputs; `by` are the launches it is to be, by label. Returns the program."""
    g = Builder("odd")
    g.output("y", build(g, *(g.input(n, a.shape, str(a.dtype)) for n, a in inputs.items())))
    graph = g.build()
    program = program_of(graph)
    arrangement = arrange(program)
    check(program, arrangement)
    made = HostMachine(program, arrangement).run(inputs)["y"]
    with np.errstate(all="ignore"):
        wanted = run(graph, inputs, Floats(wide=True))["y"]
    np.testing.assert_allclose(made, wanted, rtol=2e-5, atol=2e-5 * np.abs(wanted[np.isfinite(wanted)]).max(initial=0))
    if by is not None:
        assert [launch.label for launch in program.launches] == by
    return program


@pytest.mark.parametrize("shape", [(4, 1), (1, 1), (), (4, 4)])
@pytest.mark.parametrize("beta", [1.0, -0.5])
def test_what_a_gemm_adds_is_no_bias_where_it_is_no_row(shape, beta):
    c = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)

    def build(g, x, w):
        return eqsat.relu(eqsat.gemm(x, w, g.constant(c), alpha=2.5, beta=beta))

    agrees(build, by=["gemm", "add + relu" if beta == 1.0 else "mul + add + relu"], x=X, w=W)


@pytest.mark.parametrize("shape", [(4,), (1, 4)])
def test_what_a_gemm_adds_is_a_bias_where_it_is_a_row(shape):
    c = np.arange(4, dtype=np.float32).reshape(shape)
    agrees(lambda g, x, w: eqsat.relu(eqsat.gemm(x, w, g.constant(c))), by=["gemm + relu"], x=X, w=W)


@pytest.mark.parametrize(
    ("scales", "size", "label"),
    [
        ((1e-30, 1e-30), 1e30, "matmul + mul"),
        ((1e30, 1e30), 1e-35, "matmul + mul"),
        ((1e-40,), 1.0, "matmul"),
        ((0.0,), np.inf, "matmul"),
    ],
    ids=["small", "large", "denormal", "zero"],
)
def test_a_product_is_scaled_by_a_library_only_as_float32_has_it(scales, size, label):
    def build(g, x, w):
        made = x @ w
        for scale in scales:
            made = made * g.constant(np.float32(scale))
        return made

    agrees(build, by=[label, "mul"], x=(X * np.float32(size)).astype(np.float32), w=W)


def test_a_quotient_by_a_denormal_is_no_scale_of_infinity():
    made = agrees(lambda g, x, w: (x @ w) / g.constant(np.float32(1e-40)), x=X * np.float32(1e-6), w=W)
    assert [launch.label for launch in made.launches] == ["matmul", "div"]


def one_node(op, types, result, **attrs):
    """A graph of one ONNX node, of operands and a result of these element types and shapes."""
    inputs = [helper.make_tensor_value_info(f"x{i}", *type) for i, type in enumerate(types)]
    node = helper.make_node(op, [i.name for i in inputs], ["y"], **attrs)
    proto = helper.make_graph([node], "odd", inputs, [helper.make_tensor_value_info("y", *result)])
    return load(helper.make_model(proto, opset_imports=[helper.make_opsetid("", 20)], ir_version=9))


def refused(graph, sizes=None):
    with pytest.raises(BackendError) as caught:
        program_of(graph, sizes)
    assert str(caught.value).count("\n") == 2  # what and where, what was expected, what to do
    return str(caught.value)


def test_what_no_kernel_computes_is_named_as_the_model_names_it():
    said = refused(one_node("Det", [(TensorProto.FLOAT, [3, 3])], (TensorProto.FLOAT, [])))
    assert said.startswith("odd: node making 'y' (opaque) is Det, which no kernel computes")
    assert said.endswith("run it on the CPU: result.compile('onnxruntime')")


@pytest.mark.parametrize("dtype", [TensorProto.STRING, TensorProto.COMPLEX64, TensorProto.FLOAT8E5M2, TensorProto.INT4])
def test_element_types_that_no_kernel_has_are_refused(dtype):
    said = refused(one_node("Identity", [(dtype, [2, 3])], (dtype, [2, 3])))
    assert said.startswith("odd: 'x0' is ")
    assert (
        "which no kernel reads or writes\n  expected floats of 16 to 64 bits, integers of 8 to 64 bits, or bool" in said
    )


def test_an_input_of_any_rank_is_refused_and_sizes_are_not_asked_for():
    said = refused(one_node("Relu", [(TensorProto.FLOAT, None)], (TensorProto.FLOAT, None)), {"n": 1})
    assert said.startswith("odd: input 'x0' is float32[?], of any rank\n  expected inputs of known ranks")
    assert "sizes such as" not in said
