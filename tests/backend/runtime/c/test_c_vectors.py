"""Vectors of integers and of floats of 16 bits in generated C: exactly what one element at a time is."""

import ml_dtypes
import numpy as np
import pytest

import eqsat
from eqsat.language.graphs.builder import Builder
from eqsat.runtime.c.program.kernels import KernelChoice
from eqsat.runtime.c.program.lowering import c_program
from eqsat.runtime.kernels.nests.options import MappingOptions
from tests.support.c_graphs import HALF, small_elements
from tests.support.c_programs import assert_same, computed

RNG = np.random.default_rng(13)
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
PRODUCT = "def mm({t}(M,K) A, {t}(K,N) B) -> (C) {{ C(m,n) +=! A(m,k) * B(k,n) }}"
ALONG = """def along({t}(M,K) A, {t}(K) b) -> (s, p, q, r) {{
  s(k) +=! A(m,k) - b(k)
  p(k) max=! A(m,k)
  q(m) min=! A(m,k) > b(k) ? A(m,k) : b(k)
  r(k) *=! A(m,k)
}}"""
WIDER = "def wider(int8(M,K) A, uint8(K,N) B) -> (C) { C(m,n) +=! int32(A(m,k)) * int32(B(k,n)) }"


def drawn(dtype, *shape):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


def check(source, *arrays):
    """Vectors of every width make what one loop for each index does."""
    wanted = eqsat.kernel(source, options="naive")(*arrays)
    for width in (16, 32, 64):
        assert "splat_v" in eqsat.emit(source, *arrays, options={"vector_bytes": width})
        made = eqsat.kernel(source, options={"vector_bytes": width})(*arrays)
        for one, other in zip(*(x if isinstance(x, tuple) else (x,) for x in (made, wanted)), strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap_around_in_vectors(dtype):
    a, b = drawn(dtype, 13, 37), drawn(dtype, 37, 70)
    check(PRODUCT.format(t=dtype), a, b)
    check(ALONG.format(t=dtype), drawn(dtype, 19, 130), drawn(dtype, 130))


def test_small_integers_are_widened_in_vectors():
    check(WIDER, drawn("int8", 5, 40), drawn("uint8", 40, 70))


def every_half(dtype):
    """All floats of 16 bits, and of float32 those between two of them: halfway, a little less and a little more."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    with np.errstate(all="ignore"):
        near = halves.astype(np.float32)
        steps = np.spacing(halves).astype(np.float32) / 2
        middle = near + steps
        more = [np.nextafter(middle, np.float32(end), dtype=np.float32) for end in (np.inf, -np.inf)]
    return halves, np.concatenate([near, middle, *more, np.float32([3e38, -3e38, 1e-45, -1e-45, 65519.9, 65520])])


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_halves_are_widened_and_narrowed_in_vectors_as_numpy_does(dtype, width):
    halves, floats = every_half(dtype)
    b = Builder("halves")
    kind = "float16" if dtype is np.float16 else "bfloat16"
    x, y = b.input("x", halves.shape, dtype=kind), b.input("y", floats.shape, dtype="float32")
    b.output("wide", eqsat.cast(x, to="float32"))
    b.output("narrow", eqsat.cast(eqsat.identity(y), to=kind))
    graph = b.build()
    program, made = computed(
        graph, {"x": halves, "y": floats}, lambda kernel: KernelChoice("direct", MappingOptions(vector_bytes=width))
    )
    text = "".join(
        launch.work.text(KernelChoice("direct", MappingOptions(vector_bytes=width))).code for launch in program.launches
    )
    assert f"v{width // 4}f_" in text
    for one, wanted in ((made["wide"], halves.astype(np.float32)), (made["narrow"], floats.astype(dtype))):
        is_number = ~np.isnan(wanted)
        assert np.isnan(one[~is_number]).all()
        bits = np.uint32 if one.dtype == np.float32 else np.uint16
        np.testing.assert_array_equal(one.view(bits)[is_number], wanted.view(bits)[is_number])


@pytest.mark.parametrize("width", [16, 32, 64])
def test_operators_on_small_elements_in_vectors_of_any_width(width):
    graph, inputs = small_elements()
    _, made = computed(graph, inputs, lambda kernel: KernelChoice("direct", MappingOptions(vector_bytes=width)))
    assert_same(graph, made, inputs, HALF)
    assert len(c_program(graph).launches) == len(graph.nodes)
