"""Generated kernels along rows: those of models, what they are made of, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from eqsat.language.terms.types import DType, TensorType
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.templates.codegen import generate
from eqsat.runtime.kernels.view import View
from eqsat.testing.cuda.emulator import build
from tests.support.cuda_groups import GroupBuilder, close
from tests.support.guarded import run

F16, F32, F64 = DType.FLOAT16, DType.FLOAT32, DType.FLOAT64
NHWC = (0, 2, 3, 1)
MOST_REGISTERS = 128


class Kernel(GroupBuilder):
    """A group whose float32 values are held in one type, and images in one order of axes."""

    def __init__(self, held: DType = F32, order: tuple[int, ...] | None = None) -> None:
        super().__init__()
        self.held, self.order, self.results = held, order, dict[str, View]()
        self.rng = np.random.default_rng(0)

    def x(self, name: str, *shape: int, dtype: DType = F32, held: DType | None = None) -> str:
        order = self.order if self.order and len(shape) == len(self.order) else None
        view = View.of(name, held or (self.held if dtype is F32 else dtype), shape, order)
        return self.operand(name, TensorType(dtype, shape), self.rng.standard_normal(shape), view)

    def made(self, *names: str) -> Kernel:
        for name in names:
            type = self.types[name]
            order = self.order if self.order and type.rank == len(self.order) else None
            held = self.held if type.dtype is F32 else type.dtype
            self.results[name] = View.of(f"to_{name}", held, type.static, order)
        return self

    @property
    def source(self) -> KernelSource:
        source = generate(self.group(self.results))
        assert source is not None
        return source


def attention_softmax() -> Kernel:
    k = Kernel(F16)
    scaled = k.node("mul", k.x("scores", 1, 12, 16, 128), k.x("scale", 1))
    return k.made(k.node("softmax", k.node("add", scaled, k.x("mask", 1, 1, 1, 128)), axis=3))


def residual_layer_norm(held: DType, width: int) -> Kernel:
    k = Kernel(held)
    total = k.node("add", k.x("x", 1, 4, width), k.x("residual", 1, 4, width))
    scale, bias = k.x("scale", width, held=F32), k.x("bias", width, held=F32)
    return k.made(k.node("layer_norm", total, scale, bias, axis=-1), total)


def rms_norm() -> Kernel:
    k = Kernel(F16)
    return k.made(k.node("rms_norm", k.x("x", 1, 2, 4096), k.x("scale", 4096), axis=-1))


def softmax_of(*shape: int, dtype: DType = F32, axis: int = -1) -> Kernel:
    k = Kernel()
    return k.made(k.node("softmax", k.x("x", *shape, dtype=dtype), axis=axis))


def log_softmax_of_words() -> Kernel:
    k = Kernel(F16)
    return k.made(k.node("log_softmax", k.x("x", 2, 32000), axis=-1))


def best_word() -> Kernel:
    k = Kernel(F16)
    return k.made(k.node("argmax", k.x("x", 2, 32000), axis=-1, keepdims=False))


def pooled(order: tuple[int, ...] | None) -> Kernel:
    k = Kernel(F16, order)
    return k.made(k.node("relu", k.node("global_avg_pool", k.x("x", 1, 256, 7, 7))))


def reduced(op: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> Kernel:
    k = Kernel()
    return k.made(k.node(op, k.x("x", *shape), axes=axes, keepdims=False))


def group_norm(order: tuple[int, ...] | None) -> Kernel:
    k = Kernel(F16, order)
    made = k.node("group_norm", k.x("x", 1, 64, 16, 16), k.x("scale", 64), k.x("bias", 64), groups=32)
    return k.made(k.node("mul", made, k.node("sigmoid", made)))


def instance_norm() -> Kernel:
    k = Kernel()
    return k.made(k.node("instance_norm", k.x("x", 1, 3, 56, 56), k.x("scale", 3), k.x("bias", 3)))


def windows(op: str, order: tuple[int, ...] | None, **attrs: object) -> Kernel:
    k = Kernel(F16, order)
    return k.made(k.node(op, k.x("x", 1, 32, 28, 28), kernel=(3, 3), **attrs))


def running_sum(axis: int) -> Kernel:
    k = Kernel()
    return k.made(k.node("cumsum", k.x("x", 5, 1000), axis=axis))


@dataclass(frozen=True)
class Expected:
    """What a kernel of a model is made of."""

    make: Callable[[], Kernel]
    block: tuple[int, int, int]
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


KERNELS = {
    "softmax of attention": Expected(attention_softmax, (64, 1, 1), ("load<8>", "store<8>", "float held[8]", ", 16>")),
    "residual and layer norm, halves": Expected(
        lambda: residual_layer_norm(F16, 768), (128, 1, 1), ("load<8>", "load<4>", "store<8>", "float held[8]")
    ),
    "residual and layer norm, floats": Expected(
        lambda: residual_layer_norm(F32, 1024), (256, 1, 1), ("load<4>", "store<4>", "float held[4]")
    ),
    "residual and layer norm, odd": Expected(lambda: residual_layer_norm(F16, 769), (256, 1, 1), (), ("load<",)),
    "rms norm": Expected(rms_norm, (256, 1, 1), ("load<8>", "float held[16]")),
    "softmax of doubles": Expected(lambda: softmax_of(2, 3, 100, dtype=F64), (64, 1, 1), ("load<2>",)),
    "softmax of columns": Expected(lambda: softmax_of(2, 100, 40, axis=1), (32, 16, 1), ("column_reduce<Sum, 16>",)),
    "softmax of a long row": Expected(lambda: softmax_of(1, 50257), (512, 1, 1), (), ("held",)),
    "softmax of two": Expected(
        lambda: softmax_of(9000, 2), (64, 1, 1), ("float held[2]", "load<2>"), ("shfl", "reduce")
    ),
    "log softmax of words": Expected(log_softmax_of_words, (512, 1, 1), ("load<8>",), ("held",)),
    "best word": Expected(best_word, (512, 1, 1), ("load<8>", "Extreme<false, false>")),
    "pooled image": Expected(lambda: pooled(None), (64, 1, 1), ("warp_reduce<Sum, 32>",)),
    "pooled image, channels last": Expected(lambda: pooled(NHWC), (32, 16, 1), ("column_reduce",)),
    "sum of all": Expected(lambda: reduced("reduce_sum", (30, 1000), (0, 1)), (512, 1, 1), ("load<4>", "block_reduce")),
    "mean of rows": Expected(lambda: reduced("reduce_mean", (64, 64), (1,)), (64, 1, 1), ("warp_reduce<Sum, 16>",)),
    "maxima of columns": Expected(lambda: reduced("reduce_max", (64, 64), (0,)), (32, 16, 1), ("Greatest",)),
    "group norm": Expected(lambda: group_norm(None), (64, 1, 1), ("load<8>",)),
    "group norm, channels last": Expected(lambda: group_norm(NHWC), (256, 1, 1), ("load<2>",)),
    "instance norm": Expected(instance_norm, (256, 1, 1), ("load<4>", "held[16]")),
    "largest of windows": Expected(
        lambda: windows("max_pool", NHWC, strides=(2, 2), pads=(1, 1, 1, 1)), (64, 1, 1), ("load<8>", "store<8>")
    ),
    "mean of windows": Expected(lambda: windows("avg_pool", None, pads=(1, 1, 1, 1)), (64, 1, 1), (), ("load<",)),
    "running sum": Expected(lambda: running_sum(1), (128, 1, 1), ("warp_scan",)),
    "running sum of columns": Expected(lambda: running_sum(0), (64, 1, 1), (), ("warp_scan",)),
}


@pytest.fixture(scope="module")
def kernels() -> dict[str, Kernel]:
    made = {name: expected.make() for name, expected in KERNELS.items()}
    build([kernel.source for kernel in made.values()])
    return made


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_models_are_made_as_meant_and_right(name: str, kernels: dict[str, Kernel]) -> None:
    kernel, expected = kernels[name], KERNELS[name]
    source = kernel.source
    assert source.block == expected.block, source.text
    assert all(text in source.code for text in expected.has), source.text
    assert not any(text in source.code for text in expected.lacks), source.text
    operands = {n: (view, kernel.arrays[n]) for n, view in kernel.views.items()}
    values = kernel.expected()
    for descending in (False, True):
        made = run(source, operands, kernel.results, descending=descending)
        for result in kernel.results:
            said = close(made[result], values[result], kernel.magnitude(result, values), 1000)
            assert not said, f"{result}: {said}\n{source.text}"


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_models_keep_to_registers(name: str, kernels: dict[str, Kernel]) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from eqsat.runtime.cuda.compiler.nvrtc import compile_cubin

    for arch in ("sm_80", "sm_90"):
        compiled = compile_cubin(kernels[name].source.code, arch)
        assert (compiled.spill_bytes, compiled.stack) == (0, 0), kernels[name].source.text
        assert compiled.registers <= MOST_REGISTERS


def test_the_text_names_the_graph_and_equal_kernels_have_equal_code() -> None:
    one, other = Kernel(), Kernel()
    one.made(one.node("softmax", one.x("scores", 3, 5), axis=-1, name="shares"))
    other.made(other.node("softmax", other.x("words", 3, 5), axis=-1, name="chances"))
    assert one.source.code == other.source.code
    assert one.source.text.startswith("// shares = softmax(scores)\n")
    assert (one.source.arguments, other.source.arguments) == (("scores", "shares"), ("words", "chances"))


def _made(kernel: Kernel, **arrays: object) -> dict[str, np.ndarray]:
    for name, array in arrays.items():
        kernel.arrays[name] = np.asarray(array).astype(kernel.views[name].dtype.numpy)
    return run(kernel.source, {n: (v, kernel.arrays[n]) for n, v in kernel.views.items()}, kernel.results)


def test_softmax_neither_overflows_nor_hides_what_is_no_number() -> None:
    inf, nan = np.inf, np.nan
    x = [[1e30, 0, -1e30], [-inf, 0, 0], [-inf, -inf, -inf], [nan, 0, 0], [inf, 0, 0]]
    (made,) = _made(softmax_of(5, 3), x=x).values()
    assert made[:2].tolist() == [[1, 0, 0], [0, 0.5, 0.5]] and np.isnan(made[2:]).all()


def test_variance_does_not_cancel_beside_a_large_mean() -> None:
    x = 4096 + np.arange(512) % 8
    kernel = Kernel()
    kernel.made(kernel.node("layer_norm", kernel.x("x", 1, 512), kernel.x("scale", 512), axis=-1))
    (made,) = _made(kernel, x=x[None], scale=np.ones(512)).values()
    np.testing.assert_allclose(made[0], (x - x.mean()) / np.sqrt(x.var() + 1e-5), rtol=1e-5)


def test_sums_of_many_halves_are_those_of_floats() -> None:
    kernel = Kernel(F16)
    kernel.made(kernel.node("reduce_mean", kernel.x("x", 1, 10000), axes=(1,)))
    (made,) = _made(kernel, x=np.full((1, 10000), 100.0)).values()
    assert made.tolist() == [[100.0]]  # though the sum is no half


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_places_of_extremes_are_the_first_or_last_and_those_of_nan(op: str, last: bool) -> None:
    kernel = Kernel()
    kernel.made(kernel.node(op, kernel.x("x", 3, 300), axis=1, keepdims=False, select_last=last))
    x = np.zeros((3, 300))
    x[1, [7, 200]] = np.nan
    x[2, [70, 71, 290]] = 5 if op == "argmax" else -5
    (made,) = _made(kernel, x=x).values()
    assert made.tolist() == ([299, 200, 290] if last else [0, 7, 70])


def test_reductions_of_nothing_are_their_identities() -> None:
    expected = {"reduce_sum": 0, "reduce_prod": 1, "reduce_max": -np.inf, "reduce_min": np.inf, "reduce_mean": np.nan}
    for op, value in expected.items():
        (made,) = _made(reduced(op, (3, 0), (1,))).values()
        np.testing.assert_equal(made, np.full(3, value, np.float32))


def test_nothing_is_launched_for_results_without_elements() -> None:
    for kernel in (softmax_of(0, 5), softmax_of(5, 0), reduced("reduce_sum", (0, 3), (1,))):
        assert 0 in kernel.source.grid
        _made(kernel)


def test_groups_of_other_kinds_are_left_to_others() -> None:
    two = Kernel()
    two.made(two.node("softmax", two.node("softmax", two.x("x", 3, 5), axis=0), axis=1))
    smaller = Kernel()
    part = smaller.node("relu", smaller.x("x", 1, 5))
    smaller.made(smaller.node("softmax", smaller.node("add", part, smaller.x("y", 3, 5)), axis=1), part)
    broadcast = Kernel()
    x = broadcast.x("x", 3, 5)
    broadcast.made(broadcast.node("sub", x, broadcast.node("reduce_max", x, axes=(1,))))
    whole = Kernel()
    whole.made(whole.node("softmax", whole.x("x", 3, 5, dtype=DType.INT32), axis=1))
    for kernel in (two, smaller, broadcast, whole):
        assert generate(kernel.group(kernel.results)) is None
