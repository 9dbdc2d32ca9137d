"""Kernels on the processor: what CUDA's threads, barriers, shuffles and memory mean, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from eqsat.errors import BackendError
from eqsat.runtime.kernels.source import KernelSource
from eqsat.testing.cuda.emulator import build, emulate


def kernel(body: str, block: tuple[int, int, int], grid: tuple[int, int, int] = (1, 1, 1), **how: int) -> KernelSource:
    code = f'extern "C" __global__ void k(const int* a, int* b) {{\n{body}\n}}'
    return KernelSource("k", code, ("a", "b"), grid, block, comment="the one that is tested", **how)


def made(source: KernelSource, size: int, *, descending: bool = False) -> np.ndarray:
    a, b = np.arange(size, dtype=np.int32), np.full(size, -1, np.int32)
    emulate(source, [a.ctypes.data, b.ctypes.data], descending=descending)
    return b


def test_threads_and_blocks_are_numbered_in_three_dimensions() -> None:
    body = """
    int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    b[block * blockDim.x * blockDim.y * blockDim.z + thread] = blockIdx.y * 1000 + threadIdx.z * 100 + threadIdx.x;"""
    grid, block = (2, 3, 5), (4, 2, 3)
    b = made(kernel(body, block, grid), 2 * 3 * 5 * 4 * 2 * 3).reshape(5, 3, 2, 3, 2, 4)
    y, z, x = np.ogrid[:3, :3, :4]
    assert (b == (1000 * y + 100 * z + x)[None, :, None, :, None, :]).all()


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("declared", ["__shared__ int held[96];", "extern __shared__ __align__(16) int held[];"])
def test_a_barrier_lets_every_thread_see_what_the_others_wrote(declared: str, descending: bool) -> None:
    body = f"""{declared}
    for (int round = 0; round < 3; round++) {{
      held[threadIdx.x] = a[threadIdx.x] + round;
      __syncthreads();
      b[threadIdx.x] = held[95 - threadIdx.x];
      __syncthreads();
    }}"""
    b = made(kernel(body, (96, 1, 1), shared=96 * 4), 96, descending=descending)
    assert (b == np.arange(96)[::-1] + 2).all()


def test_a_missing_barrier_shows_in_one_of_the_two_orders() -> None:
    body = "extern __shared__ int held[]; held[threadIdx.x] = a[threadIdx.x]; b[threadIdx.x] = held[threadIdx.x / 2];"
    results = [made(kernel(body, (64, 1, 1), shared=256), 64, descending=d) for d in (False, True)]
    assert (results[0] == np.arange(64) // 2).all() and not (results[1] == results[0]).all()


def test_a_warp_overruns_the_others_where_a_barrier_is_missing() -> None:
    def turns(barrier: str) -> KernelSource:
        body = f"""__shared__ int held;
        for (int turn = 0; turn < 2; turn++) {{
          if (threadIdx.x == 0) held = turn;
          __syncthreads();
          b[turn * 64 + threadIdx.x] = held;
          {barrier}
        }}"""
        return kernel(body, (64, 1, 1))

    assert (made(turns("__syncthreads();"), 128) == np.repeat([0, 1], 64)).all()
    assert not (made(turns(""), 128) == np.repeat([0, 1], 64)).all()


@pytest.mark.parametrize("descending", [False, True])
def test_lanes_exchange_values(descending: bool) -> None:
    lanes = np.arange(64)
    cases = {
        "__shfl_xor_sync(~0u, a[threadIdx.x], 5)": lanes ^ 5,
        "__shfl_sync(~0u, a[threadIdx.x], 3)": lanes // 32 * 32 + 3,
        "__shfl_sync(~0u, a[threadIdx.x], 3, 8)": lanes // 8 * 8 + 3,
        "__shfl_up_sync(~0u, a[threadIdx.x], 4)": np.where(lanes % 32 >= 4, lanes - 4, lanes),
        "__shfl_down_sync(~0u, a[threadIdx.x], 4, 16)": np.where(lanes % 16 < 12, lanes + 4, lanes),
        "(int)__shfl_xor_sync(~0u, (double)a[threadIdx.x], 1)": lanes ^ 1,
        "__popc(__ballot_sync(~0u, a[threadIdx.x] < 40))": np.where(lanes < 32, 32, 8),
        "__any_sync(~0u, a[threadIdx.x] == 40)": lanes >= 32,
        "__all_sync(~0u, a[threadIdx.x] < 40)": lanes < 32,
    }
    body = "\n".join(f"b[threadIdx.x + {64 * i}] = {text}; __syncwarp();" for i, text in enumerate(cases))
    b = made(kernel(body, (64, 1, 1)), 64 * len(cases), descending=descending).reshape(-1, 64)
    assert {text for text, row in zip(cases, b, strict=True) if (row != cases[text]).any()} == set()


def test_halves_of_a_warp_meet_apart() -> None:
    body = """unsigned mask = threadIdx.x < 16 ? 0xffffu : 0xffff0000u;
    int v = a[threadIdx.x];
    for (int i = 0; i < (threadIdx.x < 16 ? 1 : 3); i++) v += __shfl_xor_sync(mask, v, 1);
    b[threadIdx.x] = v;"""
    lanes = np.arange(32)
    assert (made(kernel(body, (32, 1, 1)), 32) == np.where(lanes < 16, 1, 4) * (lanes + (lanes ^ 1))).all()


def test_threads_that_ended_are_not_waited_for() -> None:
    body = "if (threadIdx.x >= 40) return; __syncthreads(); b[threadIdx.x] = __shfl_xor_sync(~0u, 1, 0);"
    b = made(kernel(body, (64, 1, 1)), 64)
    assert (b[:40] == 1).all() and (b[40:] == -1).all()


def test_atomics_count_every_thread() -> None:
    code = """extern "C" __global__ void k(int* a, float* b) {
      atomicAdd(a, 1); atomicAdd(b, 0.5f); atomicMax(a + 1, (int)(blockIdx.x * 50 + threadIdx.x)); }"""
    a, b = np.zeros(2, np.int32), np.zeros(1, np.float32)
    emulate(KernelSource("k", code, ("a", "b"), (7, 1, 1), (50, 1, 1)), [a.ctypes.data, b.ctypes.data])
    assert a.tolist() == [350, 349] and b[0] == 175


def test_intrinsics_are_what_they_approximate() -> None:
    cases = {
        "rsqrtf(x)": lambda x: 1 / np.sqrt(x),
        "__expf(x)": np.exp,
        "__fdividef(1.0f, x)": lambda x: 1 / x,
        "fmaf(x, x, -1.0f)": lambda x: x * x - 1,
        "erff(x)": lambda x: np.float32([0.5204999, 0.8427008, 0.9953223]),
        "max(x, 1.0f)": lambda x: np.maximum(x, 1),
        "exp(x)": np.exp,
        "__uint_as_float(__float_as_uint(x) ^ 0x80000000u)": np.negative,
    }
    x = np.float32([0.5, 1, 2])
    body = " ".join(f"y[{i} * 3 + threadIdx.x] = {text};" for i, text in enumerate(cases))
    code = f'extern "C" __global__ void k(const float* p, float* y) {{ float x = p[threadIdx.x]; {body} }}'
    y = np.empty((len(cases), 3), np.float32)
    emulate(KernelSource("k", code, ("x", "y"), (1, 1, 1), (3, 1, 1)), [x.ctypes.data, y.ctypes.data])
    np.testing.assert_allclose(y, [f(x) for f in cases.values()], rtol=1e-6)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("if (threadIdx.x < 16) __syncthreads();\nelse __syncthreads();", "different barriers (lines 2 and 3)"),
        ("if (threadIdx.x < 16)\n__syncthreads();\nelse __shfl_sync(~0u, 1, 0);", "wait for others that never come"),
        ("for (int i = 0; i < threadIdx.x; i++) {\n__syncthreads(); }\n__syncthreads();", "different barriers"),
        ("if (threadIdx.x % 2) __shfl_sync(~0u, 1, 0);\nelse __shfl_xor_sync(~0u, 1, 1);", "different shuffles"),
        ("__shfl_sync(threadIdx.x < 8 ? 0x1ffu : 0xffffffffu, 1, 0);", "different masks"),
        ("__shfl_sync(1u, 1, 0);", "leaves it out"),
        ("b[0] = load<4>(a + 1).at[0];", "no multiple of their bytes"),
        ("store(b + 2, Pack<int, 4>{1, 2, 3, 4});", "no multiple of their bytes"),
        ("extern __shared__ int held[];\nheld[threadIdx.x] = 1;", "beyond the dynamic shared memory"),
    ],
)
def test_what_a_gpu_leaves_undefined_is_an_error(body: str, said: str) -> None:
    with pytest.raises(BackendError) as caught:
        made(kernel(body, (32, 1, 1), (2, 1, 1), shared=31 * 4), 32)
    assert said in str(caught.value) and "in block 0,0,0 of k" in str(caught.value)
    assert str(caught.value).startswith("the one that is tested: ")
    assert "k.cu" in caught.value.remedy
    # The library is as good as new after it.
    with pytest.raises(BackendError, match="block 0,0,0"):
        made(kernel(body, (32, 1, 1), (2, 1, 1), shared=31 * 4), 32)


def test_a_kernel_that_does_not_compile_is_named_with_its_source_and_log() -> None:
    fine, broken = kernel("b[0] = 1;", (1, 1, 1)), kernel("b[0] = 1;\nb[1] = absent;", (1, 1, 1))
    with pytest.raises(BackendError, match=r"k\.cu:3:8: error: .*absent") as caught:
        build([fine, broken])
    source, log = caught.value.remedy.removeprefix("its source is in ").split(", the compiler's log in ")
    assert Path(source).read_text() == broken.text and "absent" in Path(log).read_text()


def test_a_kernel_that_takes_other_arguments_than_its_source_says_is_refused() -> None:
    code = 'extern "C" __global__ void k(const int* a, int n) { }'
    with pytest.raises(BackendError, match="one pointer for each"):
        emulate(KernelSource("k", code, ("a",), (1, 1, 1), (1, 1, 1)), [0])
    with pytest.raises(BackendError, match="an int for each of the source's numbers"):
        emulate(KernelSource("k", code, ("a", "b"), (1, 1, 1), (1, 1, 1)), [0, 0])
    for parameters, said in (("int n, const int* a", "takes pointers, and an int"), ("int* a, float n", "ints behind")):
        code = f'extern "C" __global__ void k({parameters}) {{ }}'
        with pytest.raises(BackendError, match=said):
            emulate(KernelSource("k", code, ("a",), (1, 1, 1), (1, 1, 1), numbers=(3,)), [0])


def test_numbers_of_a_launch_are_ints_behind_the_pointers() -> None:
    made_here = np.zeros(3, np.int32)
    code = 'extern "C" __global__ void k(int* b, const int n, int m) { b[threadIdx.x] = n * 10 + m; }'
    for n, m in ((7, -2), (0, 1 << 20)):
        source = KernelSource("k", code, ("b",), (1, 1, 1), (3, 1, 1), numbers=(n, m))
        emulate(source, [made_here.ctypes.data])
        assert made_here.tolist() == [n * 10 + m] * 3


def test_launches_that_no_gpu_takes_are_refused() -> None:
    for source, said in [
        (kernel("", (2048, 1, 1)), "a block of 2048 threads"),
        (kernel("", (0, 1, 1)), "a block of 0 threads"),
        (kernel("", (1, 1, 1), (1, 70000, 1)), "a grid of"),
        (kernel("", (1, 1, 1), shared=1 << 20), "1048576 bytes of shared memory"),
    ]:
        with pytest.raises(BackendError, match=said):
            made(source, 1)
    with pytest.raises(BackendError, match="3 addresses"):
        emulate(kernel("", (1, 1, 1)), [0, 0, 0])


def test_nothing_is_launched_on_an_empty_grid() -> None:
    assert (made(kernel("b[0] = 7;", (1, 1, 1), (0, 1, 1)), 4) == -1).all()


def test_many_kernels_of_one_name_are_compiled_together() -> None:
    sources = [kernel(f"b[threadIdx.x] = a[threadIdx.x] * {i};", (8, 1, 1)) for i in range(20)]
    build(sources)
    for i, source in enumerate(sources):
        assert (made(source, 8) == np.arange(8) * i).all()


def test_kernels_run_from_several_threads_of_python() -> None:
    body = "__shared__ int held[64]; held[threadIdx.x] = a[threadIdx.x]; __syncthreads();"
    source = kernel(body + "b[blockIdx.x * 64 + threadIdx.x] = held[63 - threadIdx.x];", (64, 1, 1), (50, 1, 1))
    wrong = []

    def go() -> None:
        if (made(source, 3200).reshape(50, 64) != np.arange(64)[::-1]).any():
            wrong.append(1)

    threads = [Thread(target=go) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_without_a_compiler_it_says_what_to_install(tmp_path: Path) -> None:
    code = """
from eqsat.errors import BackendError
from eqsat.testing.cuda.emulator import emulate
from eqsat.runtime.kernels.source import KernelSource
try:
    emulate(KernelSource("k", "", (), (1, 1, 1), (1, 1, 1)), [])
except BackendError as error:
    print(error)
"""
    environment = {"PATH": str(tmp_path), "PYTHONPATH": ":".join(sys.path), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert "no C++ compiler is found" in done.stdout and "install g++ or clang" in done.stdout
