"""What every kernel may use means the same behind the shim as NumPy has it, and NVRTC takes it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from eqsat.runtime.kernels.source import KernelSource
from eqsat.testing.cuda.emulator import emulate

ALL_BITS = np.arange(1 << 16, dtype=np.uint16)
HALVES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}


def elementwise(expression: str, x: np.ndarray, taken: str, made: str, dtype: np.dtype) -> np.ndarray:
    result = np.empty(x.shape, dtype)
    code = f"""extern "C" __global__ void map(const {taken}* from, {made}* to) {{
      i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
      if (i < {x.size}) {{ {taken} x = from[i]; to[i] = {expression}; }}
    }}"""
    source = KernelSource("map", code, ("from", "to"), (-(-x.size // 256), 1, 1), (256, 1, 1))
    emulate(source, [x.ctypes.data, result.ctypes.data])
    return result


def same(a: np.ndarray, b: np.ndarray) -> bool:
    nan = np.isnan(a.astype(np.float32))
    return bool((nan == np.isnan(b.astype(np.float32))).all() and (a.view(np.uint16) == b.view(np.uint16))[~nan].all())


@pytest.mark.parametrize("name", HALVES)
def test_every_half_becomes_the_float_it_is(name: str) -> None:
    made = elementwise("to_float(x)", ALL_BITS, name, "float", np.dtype(np.float32))
    expected = ALL_BITS.view(HALVES[name]).astype(np.float32)
    nan = np.isnan(expected)
    assert (np.isnan(made) == nan).all() and (made.view(np.uint32) == expected.view(np.uint32))[~nan].all()


@pytest.mark.parametrize("name", HALVES)
def test_every_half_survives_a_round_trip(name: str) -> None:
    made = elementwise(f"from_float<{name}>(to_float(x))", ALL_BITS, name, name, HALVES[name])
    assert same(made, ALL_BITS.view(HALVES[name]))


@pytest.mark.parametrize("name", HALVES)
def test_floats_round_to_the_nearest_half_and_ties_to_even(name: str) -> None:
    with np.errstate(all="ignore"):
        exact = ALL_BITS.view(HALVES[name]).astype(np.float32)
        following = np.nextafter(exact.astype(HALVES[name]), HALVES[name].type(np.inf)).astype(np.float32)
        middle = exact / 2 + following / 2
        drawn = np.random.default_rng(0).integers(0, 1 << 32, 200_000, dtype=np.uint64).astype(np.uint32)
        near = [np.nextafter(middle, np.float32(to)) for to in (-np.inf, np.inf)]
        floats = np.concatenate([exact, middle, *near, drawn.view(np.float32)]).astype(np.float32)
        made = elementwise(f"from_float<{name}>(x)", floats, "float", name, HALVES[name])
        assert same(made, floats.astype(HALVES[name]))


def test_doubles_are_narrowed_by_way_of_floats_and_kept_as_they_are() -> None:
    doubles = np.array([1.0, -2.5, 1e300, np.inf, np.nan, 1 + 2**-40])
    assert elementwise("narrow<double>(x)", doubles, "double", "double", np.dtype(float)).tobytes() == doubles.tobytes()
    made = elementwise("narrow<f16>(x)", doubles, "double", "f16", np.dtype(np.float16))
    assert made[:4].tolist() == [1.0, -2.5, np.inf, np.inf] and np.isnan(made[4]) and made[5] == 1


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
def test_elements_move_together(width: int) -> None:
    code = f"""extern "C" __global__ void reversed(const u8* from, u8* to) {{
      Pack<u8, {width}> pack = load<{width}>(from + threadIdx.x * {width}), back;
      for (int i = 0; i < {width}; i++) back.at[i] = pack.at[{width} - 1 - i];
      store(to + threadIdx.x * {width}, back);
    }}"""
    raw = np.zeros(1024, np.uint8)
    aligned = raw[-raw.ctypes.data % 16 :][: 32 * width]
    aligned[:] = np.random.default_rng(1).integers(0, 256, 32 * width)
    before, made = aligned.copy(), aligned
    emulate(KernelSource("reversed", code, ("from", "to"), (1, 1, 1), (32, 1, 1)), [made.ctypes.data, made.ctypes.data])
    assert (made.reshape(32, width) == before.reshape(32, width)[:, ::-1]).all()


@pytest.mark.parametrize("threads", [32, 64, 512, 1024])
@pytest.mark.parametrize(
    ("operator", "reduced"), [("Sum", np.sum), ("Product", np.prod), ("Greatest", np.max), ("Least", np.min)]
)
def test_blocks_reduce_to_one_value_for_all_threads(threads: int, operator: str, reduced: object) -> None:
    code = f"""extern "C" __global__ void reduced(const double* from, double* to) {{
      double once = block_reduce<{operator}, {threads}>(from[threadIdx.x]);
      to[threadIdx.x] = once + block_reduce<{operator}, {threads}>(2 * from[threadIdx.x]);
    }}"""
    source = KernelSource("reduced", code, ("from", "to"), (1, 1, 1), (threads, 1, 1))
    x = 1 + np.random.default_rng(2).integers(-1, 2, threads) / 64
    for descending in (False, True):
        for nan in (False, True):
            x[threads // 3] = np.nan if nan else 1
            made = np.zeros(threads)
            emulate(source, [x.ctypes.data, made.ctypes.data], descending=descending)
            np.testing.assert_allclose(made, reduced(x) + reduced(2 * x), rtol=1e-12)
            assert len({m.tobytes() for m in made}) == 1


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_nvrtc_takes_it_and_moves_sixteen_bytes_at_a_time(arch: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from eqsat.runtime.cuda.compiler.nvrtc import compile_cubin

    code = """extern "C" __global__ void __launch_bounds__(256) all(const f16* __restrict__ a, bf16* b, double* c) {
      Pack<f16, 8> pack = load<8>(a + 8 * threadIdx.x);
      Pack<bf16, 8> made;
      float sum = -INFINITY;
      for (int i = 0; i < 8; i++) {
        sum = Greatest::join(sum, widen(pack.at[i]));
        made.at[i] = narrow<bf16>(to_float(pack.at[i]) + NAN);
      }
      c[threadIdx.x] = narrow<double>(block_reduce<Sum, 256>(sum));
      store(b + 8 * threadIdx.x, made);
    }"""
    compiled = compile_cubin(code, arch)
    assert compiled.cubin.startswith(b"\x7fELF")
    assert compiled.registers <= 64 and not compiled.spill_bytes and not compiled.stack
    assert compiled.shared == 32
