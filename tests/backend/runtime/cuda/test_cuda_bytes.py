"""Products of int8 and float8 on GPUs, without one: what cuBLASLt is asked for, and plans with values in bytes.

Kernels run on the processor, calls of the library are computed by references. Numbers of element types and kinds of
sums are compared with those of NVIDIA's packages, where these are installed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from eqsat.errors import BackendError
from eqsat.language.graphs.builder import Builder
from eqsat.language.graphs.lower import lower
from eqsat.language.terms import (
    PLAIN,
    Array,
    Conversion,
    DType,
    Float8Scale,
    Graph,
    Held,
    Kernel,
    Node,
    Plan,
    Scale,
    State,
    TensorType,
)
from eqsat.quantisation.scales import symmetric, weights
from eqsat.runtime.backend import execute
from eqsat.runtime.cuda.compiler.nvrtc import compile_cubin
from eqsat.runtime.cuda.libraries import cublaslt
from eqsat.runtime.cuda.libraries.calls import Matmul
from eqsat.runtime.cuda.libraries.emulated import compute
from eqsat.runtime.cuda.libraries.substitute import source_of
from eqsat.runtime.cuda.program.lowering import program_of
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.templates.codegen import generate
from eqsat.runtime.kernels.view import View
from eqsat.runtime.programs.arena import arrange, check
from eqsat.runtime.programs.arrays import strided
from eqsat.runtime.programs.launches import Fallback
from eqsat.runtime.programs.program import KernelProgram
from eqsat.runtime.programs.quantised import explicit
from eqsat.testing.cuda.emulator import emulate
from eqsat.testing.cuda.host import HostMachine

I8, I32, F8, F32, F16 = DType.INT8, DType.INT32, DType.FLOAT8E4M3FN, DType.FLOAT32, DType.FLOAT16
RNG = np.random.default_rng(0)


def call(
    dtype: DType, m: int = 5, k: int = 32, n: int = 16, result: DType | None = None, turned: bool = True, **options: Any
) -> Matmul:
    """A product of rows by columns, or by rows."""
    b = View.of("b", dtype, (k, n), (1, 0) if turned else None)
    made = result or (I32 if dtype is I8 else F32)
    return Matmul(View.of("a", dtype, (m, k)), b, View.of("y", made, (m, n)), **options)


@pytest.mark.parametrize(("dtype", "m", "k", "n"), [(I8, 5, 32, 16), (I8, 1, 4, 4), (F8, 5, 32, 16), (F8, 17, 16, 48)])
def test_rows_by_columns_of_bytes_are_what_the_library_transposes(dtype, m, k, n):
    asked = cublaslt.product_of(call(dtype, m, k, n))
    assert (asked.left.turned, asked.right.turned) == (True, False)
    assert (asked.rows, asked.columns, asked.inner) == (n, m, k)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (call(I8, turned=False), "int8 by any but rows times columns"),
        (call(F8, turned=False), "float8e4m3fn by any but rows times columns"),
        (call(I8, n=18), "18 columns of int8, which are no multiple of 4"),
        (call(I8, k=30), "30 terms of int8, which are no multiple of 4"),
        (call(F8, n=24), "24 columns of float8e4m3fn, which are no multiple of 16"),
        (call(F8, k=36), "36 terms of float8e4m3fn, which are no multiple of 16"),
        (call(I8, result=F32), "a result of float32 from int8"),
        (call(F8, result=F8), "a result of float8e4m3fn from float8e4m3fn"),
        (call(I8, alpha=0.5), "sums of int8 times 0.5"),
        (call(I8, epilogue="relu"), "an epilogue in int8"),
        (call(F8, epilogue="relu"), "an epilogue in float8e4m3fn"),
        (
            Matmul(View.of("a", I8, (8, 40)).sliced(1, 2, 32), call(I8).b, View.of("y", I32, (8, 16))),
            "a matrix 2 elements behind the beginning of its buffer",
        ),
        (
            Matmul(View.of("a", F8, (8, 40)).sliced(1, 0, 32), call(F8).b, View.of("y", F32, (8, 16))),
            "vectors that lie 40 elements of float8e4m3fn apart",
        ),
    ],
)
def test_products_of_bytes_that_the_library_has_no_kernel_for_have_a_reason(given, reason):
    assert cublaslt.expressible(given) == reason


@pytest.mark.parametrize("given", [call(I8, 3, 4096, 4), call(F8, 5, 64, 32, alpha=0.125), call(F8, result=F16)])
def test_the_generated_kernel_in_its_place_computes_the_same(given):
    memory = {}
    for view in (given.a, given.b):
        drawn = RNG.integers(-127, 128, view.count) if view.dtype is I8 else RNG.standard_normal(view.count)
        memory[view.buffer] = drawn.astype(view.dtype.numpy).view(np.uint8)
    if given.a.dtype is I8:  # the largest sum
        memory["a"][:4096] = memory["b"][:4096] = np.uint8(127)
    memory["y"] = np.zeros(given.result.nbytes, np.uint8)

    def elements(view: View) -> Array:
        return strided(memory[view.buffer], view)

    compute(given, elements)
    expected = elements(given.result).copy()
    if given.a.dtype is I8:
        assert expected[0, 0] == 4096 * 127 * 127
        np.testing.assert_array_equal(expected, elements(given.a).astype(np.int64) @ elements(given.b).astype(np.int64))
    source, views = source_of(given)
    memory["y"][:] = 0
    emulate(source, [memory[view.buffer].ctypes.data for view in views])
    np.testing.assert_allclose(elements(given.result), expected, rtol=0 if given.a.dtype is I8 else 2e-3, atol=1e-5)


def copied(x: Array, dtype: DType) -> Array:
    """Elements in another type, by a generated kernel on the processor."""
    given, made = View.of("from", DType.of(x.dtype), x.shape), View.of("to", dtype, x.shape)
    types = dict.fromkeys(("from", "to"), TensorType(F32, x.shape))
    source = generate(Group((Node("identity", ("from",), ("to",)),), types, {"from": given}, {"to": made}))
    held, out = np.ascontiguousarray(x), np.zeros(x.shape, dtype.numpy)
    emulate(source, [held.ctypes.data, out.ctypes.data])
    return out


def test_floats_of_8_bits_are_rounded_and_restored_as_by_ml_dtypes():
    every = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(copied(every, F32), every.astype(np.float32))
    ordered = np.sort(every.astype(np.float32)[np.isfinite(every.astype(np.float32))])
    ties = (ordered[1:] + ordered[:-1]) / 2
    spread = RNG.standard_normal(1 << 15) * 2.0 ** RNG.integers(-14, 12, 1 << 15)
    edges = [0.0, -0.0, 448, 449, 464, 465, 1e30, -1e30, np.inf, -np.inf, 2.0**-10, 2.0**-9, 1e-40]
    given = np.concatenate([ties, np.nextafter(ties, np.float32(9)), spread, edges]).astype(np.float32)
    expected = np.clip(given, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(copied(given, F8).view(np.uint8), expected.view(np.uint8))
    assert np.isnan(copied(np.float32([np.nan, -np.nan]), F8).astype(np.float32)).all()


def scale_of(array: Array, precision: str, axis: int | None = None) -> Scale:
    most = float(np.abs(array).max())
    if precision == "float8":
        return Float8Scale.of(float(np.float32(most / 448)))
    return symmetric(-most, most, I8) if axis is None else weights(array, axis)


def products(shape: tuple[int, ...], hidden: int = 32, *, gemm: bool = False) -> Graph:
    """Two products after each other, with a bias and a function between, and a third reader of the input."""
    g = Builder("products")
    x = g.input("x", shape)

    def weight(rows, columns, turned=False):
        array = (RNG.standard_normal((rows, columns)) / np.sqrt(rows)).astype("f")
        return g.constant(array.T.copy() if turned else array)

    bias = g.constant(RNG.standard_normal(hidden).astype("f"))
    if gemm:
        h = g.apply("gemm", x, weight(shape[-1], hidden, turned=True), bias, trans_b=True, alpha=0.5, beta=2.0)
    else:
        h = g.apply("add", g.apply("matmul", x, weight(shape[-1], hidden)), bias)
    h = g.apply("relu", h)
    y = g.apply("matmul", h, weight(hidden, shape[-1]))
    g.output("y", g.apply("softmax", g.apply("add", y, x), axis=-1))
    return g.build()


def in_bytes(graph: Graph, precision: str, data: Array) -> Plan:
    """The plan that computes products on bytes, the first with what follows it."""
    inner = dict.fromkeys(v for n in graph.nodes for v in n.outputs)
    values = execute(
        Graph("all", graph.inputs, {v: v for v in inner}, graph.nodes, graph.constants, graph.types), {"x": data}
    )
    byte = State("row", precision)
    steps: list[Kernel | Conversion] = [Conversion("x", PLAIN, byte)]
    scales = {("x", precision): scale_of(data, precision)}
    nodes = list(graph.nodes)
    first = next(i for i, node in enumerate(nodes) if node.op == "relu")
    for chain in (nodes[: first + 1], nodes[first + 1 : first + 2]):
        product, end = chain[0], chain[-1].outputs[0]
        x, w, *_ = product.inputs
        held = byte if chain[-1].op == "relu" else PLAIN
        made = {v for node in chain for v in node.outputs}
        others = [v for node in chain for v in node.inputs if v not in made and v not in (x, w)]
        operands = (Held(x, byte), Held(w, byte), *(Held(v, PLAIN) for v in others))
        steps.append(Kernel(tuple(n.outputs[0] for n in chain), operands, (Held(end, held),), precision))
        axis = None if precision == "float8" else (0 if product.attrs.get("trans_b") else 1)
        scales[w, precision] = scale_of(graph.constants[w].array, precision, axis)
        if held is byte:
            scales[end, precision] = scale_of(values[end], precision)
    for node in nodes[first + 2 :]:
        held = tuple(Held(v, PLAIN) for v in node.inputs)
        steps.append(Kernel(node.outputs, held, (Held(node.outputs[0], PLAIN),)))
    return Plan(graph, tuple(steps), {}, scales)


def emulated(program: KernelProgram, data: Array) -> Array:
    arrangement = arrange(program)
    check(program, arrangement)
    return HostMachine(program, arrangement).run({"x": data})["y"]


@pytest.mark.parametrize(("shape", "gemm"), [((5, 32), False), ((1, 48), True), ((3, 7, 16), False)])
@pytest.mark.parametrize("precision", ["int8", "float8"])
def test_a_plan_in_bytes_computes_what_its_operators_say(shape, gemm, precision):
    graph = products(shape, gemm=gemm)
    data = RNG.standard_normal(shape).astype("f")
    plan = in_bytes(graph, precision, data)
    program = program_of(plan)
    called = [launch.work for launch in program.launches if isinstance(launch.work, Matmul)]
    assert [c.a.dtype for c in called] == [I8 if precision == "int8" else F8] * 2
    assert not [launch for launch in program.launches if isinstance(launch.work, Fallback)]
    given = emulated(program, data)
    if precision == "int8":
        # The same operators by NumPy: sums of integers and roundings of elements are exact, a softmax is not.
        stated = explicit(plan).graph
        before = stated.producers[stated.outputs["y"]].inputs[0]
        exact = execute(replace(stated, outputs={"y": before}).without_dead(), {"x": data}, "numpy")["y"]
        sums = program_of(plan_until(plan, before))
        np.testing.assert_array_equal(emulated(sums, data), exact)
    written = execute(lower(plan), {"x": data}, "numpy")["y"]
    assert np.linalg.norm(given - written) <= (1e-6 if precision == "float8" else 2e-3) * np.linalg.norm(written)
    plain = execute(graph, {"x": data}, "numpy")["y"]
    assert 1e-4 < np.linalg.norm(given - plain) / np.linalg.norm(plain) < 0.1


def plan_until(plan: Plan, value: str) -> Plan:
    """A plan without its last step, whose operand is its output."""
    *steps, _ = plan.steps
    nodes = tuple(node for node in plan.graph.nodes if node.op != "softmax")
    return Plan(replace(plan.graph, outputs={"y": value}, nodes=nodes), tuple(steps), {}, plan.scales)


def test_without_the_library_integers_and_floats_run_on_generated_kernels():
    data = RNG.standard_normal((5, 32)).astype("f")
    graph = products((5, 32))
    for precision in ("int8", "float8"):
        plan = in_bytes(graph, precision, data)
        program = program_of(plan, libraries=())
        assert {launch.kind for launch in program.launches} == {"generated"}
        np.testing.assert_allclose(emulated(program, data), emulated(program_of(plan), data), rtol=1e-5, atol=1e-7)


def test_a_kernel_on_bytes_that_is_no_product_by_weights_is_refused():
    g = Builder("squares")
    x = g.input("x", (16, 16))
    g.output("y", g.apply("matmul", x, x))
    graph = g.build()
    byte = State("row", "int8")
    product = graph.nodes[0]
    steps = (
        Conversion("x", PLAIN, byte),
        Kernel(product.outputs, (Held("x", byte),), (Held(product.outputs[0], PLAIN),), "int8"),
    )
    plan = Plan(graph, steps, {}, {("x", "int8"): symmetric(-1.0, 1.0, I8)})
    with pytest.raises(BackendError, match=r"is computed by int8\n  expected products of numbers of a byte"):
        program_of(plan)


def test_kernels_with_floats_of_8_bits_compile_without_spills():
    pytest.importorskip("cuda.bindings.nvrtc", reason="pip install cuda-bindings nvidia-cuda-nvrtc")
    data = RNG.standard_normal((64, 64)).astype("f")
    program = program_of(in_bytes(products((64, 64)), "float8", data))
    codes = dict.fromkeys(
        x.work.code for x in program.launches if isinstance(x.work, KernelSource) and "f8" in x.work.code
    )
    assert len(codes) == 2
    text = "\n".join(f"namespace n{i} {{\n{code}\n}}".replace('extern "C"', "") for i, code in enumerate(codes))
    for arch in ("sm_80", "sm_90"):
        log = compile_cubin(text, arch=arch).log
        assert re.findall(r"(\d+) bytes spill stores", log) == ["0", "0"]


def test_element_types_have_the_numbers_of_cuda():
    runtime = pytest.importorskip("cuda.bindings.runtime", reason="pip install cuda-bindings")
    names = {
        DType.FLOAT32: "CUDA_R_32F",
        DType.FLOAT64: "CUDA_R_64F",
        DType.FLOAT16: "CUDA_R_16F",
        DType.BFLOAT16: "CUDA_R_16BF",
        I8: "CUDA_R_8I",
        I32: "CUDA_R_32I",
        F8: "CUDA_R_8F_E4M3",
    }
    assert {dtype: int(getattr(runtime.cudaDataType, name)) for dtype, name in names.items()} == cublaslt.TYPES


@pytest.mark.skipif(importlib.util.find_spec("nvmath") is None, reason="nvmath is not installed: make test-cuda")
def test_cublaslt_takes_the_descriptors_of_bytes(tmp_path):
    """In a process of its own, as for floats; the kinds of sums have the numbers of nvmath's enumeration."""
    stub = tmp_path / "stub.c"
    stub.write_text("int cuDriverGetVersion(int* v) { *v = 13000; return 0; }")
    compiler = shutil.which("cc") or shutil.which("gcc")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", stub], check=True)
    code = """
        import numpy as np
        from nvmath.bindings import cublas, cublasLt as lt
        from eqsat.language.terms.types import DType
        from eqsat.runtime.cuda.libraries.cublaslt_library import Descriptors
        from tests.backend.runtime.cuda.test_cuda_bytes import F8, I8, call

        def read(handle, attribute, get, dtype_of):
            held, written = np.zeros(1, dtype_of(attribute)), np.zeros(1, np.uint64)
            get(handle, attribute, held.ctypes.data, held.nbytes, written.ctypes.data)
            return int(held[0])

        kinds = cublas.ComputeType
        for given, compute, scale, element, sums in (
            (call(I8), kinds.COMPUTE_32I, 10, 3, 10),
            (call(F8, alpha=0.25), kinds.COMPUTE_32F, 0, 28, 0),
        ):
            made = Descriptors(lt, given, lambda view: 4096)
            names = lt.MatmulDescAttribute
            wanted = dict(TRANSA=1, TRANSB=0, EPILOGUE=1, COMPUTE_TYPE=int(compute), SCALE_TYPE=scale)
            for name, value in wanted.items():
                got = read(made.matmul, names[name], lt.matmul_desc_get_attribute, lt.get_matmul_desc_attribute_dtype)
                assert got == value, name
            names = lt.MatrixLayoutAttribute
            shapes = [(element, 32, 16, 32), (element, 32, 5, 32), (sums, 16, 5, 16)]
            for layout, shape in zip(made.layouts, shapes, strict=True):
                for name, value in zip(("TYPE", "ROWS", "COLS", "LD"), shape, strict=True):
                    got = read(
                        layout, names[name], lt.matrix_layout_get_attribute, lt.get_matrix_layout_attribute_dtype
                    )
                    assert got == value, name
            assert made.alpha.tolist() == [given.alpha]
            assert made.alpha.dtype == (np.int32 if given.a.dtype is I8 else np.float32)
            made.close()
        print("taken")
    """
    places = [str(tmp_path), os.environ.get("LD_LIBRARY_PATH", "")]
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, places))}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parents[4]), *sys.path]))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "taken\n", done.stderr
