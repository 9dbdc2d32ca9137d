"""Generated kernels along rows and on windows against float64: odd sizes, element types, views, what is fused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from eqsat.language.terms import Array, DType, TensorType
from eqsat.runtime.cuda.compiler.limits import LaunchLimits
from eqsat.runtime.kernels.nests.gpu_groups.row_operators import ROW_OPERATORS
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.templates.codegen import generate
from eqsat.runtime.kernels.view import View
from eqsat.testing.cuda.emulator import build
from tests.support.cuda_groups import GroupBuilder, close, views
from tests.support.guarded import run

#: So many kernels are compiled at once, in so many examples.
BATCH, EXAMPLES = 24, 12
FLOATS = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16, DType.FLOAT64)
INTEGERS = (DType.INT8, DType.UINT8, DType.INT16, DType.INT32, DType.UINT32, DType.INT64)
SUMS = ("reduce_sum", "reduce_mean", "reduce_l1", "reduce_l2", "reduce_sum_square", "reduce_log_sum", "reduce_prod")
EXTREMES = ("reduce_max", "reduce_min", "argmax", "argmin")


@dataclass
class Case:
    builder: GroupBuilder
    results: dict[str, View]
    core: str
    source: KernelSource
    descending: bool

    def __repr__(self) -> str:
        return self.source.comment


def check(cases: list[Case]) -> None:
    build([case.source for case in cases])
    for case in cases:
        builder = case.builder
        operands = {n: (view, builder.arrays[n]) for n, view in builder.views.items()}
        made = run(case.source, operands, case.results, descending=case.descending)
        expected = builder.expected()
        for name in case.results:
            with np.errstate(all="ignore"):
                magnitude = builder.magnitude(name, expected)
            said = close(made[name], expected[name], magnitude, builder.arrays["x"].size)
            assert not said, f"{name}: {said}\n{case.source.text}\n{builder.views}\n{case.results}"


# ---- what is drawn --------------------------------------------------------------------------------------------------


def _elements(draw: st.DrawFn, type: TensorType, *, positive: bool = False, odd: bool = False) -> Array:
    rng = np.random.default_rng(draw(st.integers(0, 1 << 16)))
    if not type.dtype.is_float:
        low = 0 if type.dtype.value.startswith("u") or type.dtype is DType.BOOL else -5
        return rng.integers(low, 2 if type.dtype is DType.BOOL else 6, type.static)
    made = rng.integers(1 if positive else -32, 33, type.static) / 8
    if odd and made.size and draw(st.integers(0, 3)) == 0:
        for special in draw(st.lists(st.sampled_from((np.nan, np.inf, -np.inf)), min_size=1, max_size=3)):
            made.flat[rng.integers(made.size)] = special
    if odd and draw(st.integers(0, 9)) == 0:
        made[...] = -np.inf
    return made


def _operand(
    draw: st.DrawFn, builder: GroupBuilder, name: str, dtype: DType, shape: tuple[int, ...], **how: bool
) -> str:
    """An operand in memory; a float32 may be held in 16 bits."""
    type = TensorType(dtype, shape)
    narrow = (DType.FLOAT16, DType.BFLOAT16) if dtype is DType.FLOAT32 else ()
    view = draw(views(name, draw(st.sampled_from((dtype, dtype, *narrow))), shape))
    return builder.operand(name, type, _elements(draw, type, **how), view)


SIZES = st.one_of(st.integers(1, 9), st.sampled_from((16, 31, 32, 33, 64, 65, 100, 128, 257)))


@st.composite
def shapes(draw: st.DrawFn, low: int = 1, high: int = 4, *, empty: bool = False) -> tuple[int, ...]:
    """Shapes of at most some thousand elements, most sizes odd."""
    found: list[int] = []
    for _ in range(draw(st.integers(low, high))):
        size = draw(SIZES)
        found.append(size if np.prod([*found, size]) <= 5000 else draw(st.integers(1, 3)))
    if empty and draw(st.integers(0, 9)) == 0:
        found[draw(st.integers(0, len(found) - 1))] = 0
    return tuple(found)


def _before(draw: st.DrawFn, builder: GroupBuilder, x: str) -> str:
    """Something before the operator, of the same shape: element by element, or elements from elsewhere."""
    type = builder.types[x]
    shape = type.static
    kind = draw(st.sampled_from(("", "add", "mul", "both", "transpose", "concat", "reshape")))
    if kind == "transpose":
        perm = tuple(draw(st.permutations(range(len(shape)))))
        turned = _operand(draw, builder, "turned", type.dtype, tuple(shape[perm.index(a)] for a in range(len(shape))))
        return builder.node("add", x, builder.node("transpose", turned, perm=perm))
    if kind == "concat" and shape[-1] > 1:
        cut = draw(st.integers(1, shape[-1] - 1))
        parts = [
            _operand(draw, builder, f"part{i}", type.dtype, (*shape[:-1], n))
            for i, n in enumerate((cut, shape[-1] - cut))
        ]
        return builder.node("sub", x, builder.node("concat", *parts, axis=-1))
    if kind == "reshape":
        flat = _operand(draw, builder, "flat", type.dtype, (int(np.prod(shape)),))
        return builder.node("add", builder.node("reshape", flat, shape=shape), x)
    if kind not in ("add", "mul", "both"):
        return x
    broadcast = tuple(n if draw(st.booleans()) else 1 for n in shape)[draw(st.integers(0, len(shape) - 1)) :]
    other = _operand(draw, builder, "other", type.dtype, broadcast)
    made = builder.node("mul" if kind == "mul" else "add", x, other)
    return builder.node("mul", made, x) if kind == "both" else made


def _after(draw: st.DrawFn, builder: GroupBuilder, made: str, inner: str) -> str:
    """Something element by element after it, which may read what came before once more."""
    type = builder.types[made]
    kind = draw(st.sampled_from(("", "relu", "mul", "inner", "transpose", "reshape")))
    if kind == "relu":
        return builder.node("relu", made)
    if kind == "mul":
        return builder.node("mul", made, _operand(draw, builder, "factor", type.dtype, type.static))
    if kind == "inner" and builder.types[inner] == type:
        return builder.node("sub", made, inner)
    if kind == "transpose" and type.rank > 1:
        return builder.node("transpose", made, perm=tuple(draw(st.permutations(range(type.rank)))))
    if kind == "reshape":
        return builder.node("reshape", made, shape=(int(np.prod(type.static)),))
    return made


def _case(
    draw: st.DrawFn,
    builder: GroupBuilder,
    core: str,
    last: str,
    more: tuple[str, ...] = (),
) -> Case:
    results = {}
    for name in dict.fromkeys((last, *more)):
        dtype = builder.types[name].dtype
        narrow = (DType.FLOAT16, DType.BFLOAT16) if dtype is DType.FLOAT32 else ()
        held = draw(st.sampled_from((dtype, dtype, *narrow)))
        results[name] = draw(views(f"to_{name}", held, builder.types[name].static))
    source = generate(builder.group(results))
    assert source is not None, builder.nodes
    return Case(builder, results, core, source, draw(st.booleans()))


@st.composite
def reductions(draw: st.DrawFn) -> Case:
    op = draw(st.sampled_from((*SUMS, *EXTREMES, "reduce_log_sum_exp", "cumsum")))
    builder, dtype = GroupBuilder(), draw(st.sampled_from((*FLOATS, *INTEGERS, DType.BOOL)))
    places = op.startswith("arg")
    if dtype is DType.BOOL and op not in EXTREMES:
        dtype = DType.FLOAT32
    shape = draw(shapes(high=5, empty=op not in ("argmax", "argmin")))
    if op == "reduce_prod":
        shape = tuple(min(n, 5) for n in shape)
    if not dtype.is_float and op in ("reduce_log_sum", "reduce_log_sum_exp", "reduce_l2"):
        dtype = DType.FLOAT32  # the root or logarithm of what has wrapped around is no number
    x = _operand(draw, builder, "x", dtype, shape, positive=op == "reduce_log_sum", odd=op in EXTREMES)
    fused = op not in ("reduce_log_sum", "reduce_prod") and dtype is not DType.BOOL
    inner = _before(draw, builder, x) if fused else x
    axis = draw(st.integers(0, len(shape) - 1))
    keep = draw(st.booleans())
    if places:
        made = builder.node(op, inner, axis=axis, keepdims=keep, select_last=draw(st.booleans()))
    elif op == "cumsum":
        made = builder.node(op, inner, axis=axis, exclusive=draw(st.booleans()), reverse=draw(st.booleans()))
    else:
        axes = tuple(draw(st.sets(st.integers(0, len(shape) - 1))))
        made = builder.node(op, inner, axes=axes, keepdims=keep)
    last = made if places or dtype is DType.BOOL or op == "reduce_prod" else _after(draw, builder, made, inner)
    more = tuple(n for n in (made, inner) if n not in builder.views and draw(st.integers(0, 3)) == 0)
    return _case(draw, builder, made, last, more)


@st.composite
def row_operators(draw: st.DrawFn) -> Case:
    op = draw(st.sampled_from(sorted(ROW_OPERATORS)))
    builder, dtype = GroupBuilder(), draw(st.sampled_from(FLOATS))
    planes = op in ("instance_norm", "group_norm", "lrn")
    shape = draw(shapes(3 if planes else 1, 4, empty=op != "lrn"))
    odd = op in ("softmax", "log_softmax", "hardmax")
    inner = _before(draw, builder, _operand(draw, builder, "x", dtype, shape, odd=odd))
    axis = draw(st.integers(0, len(shape) - 1))
    if op in ("layer_norm", "rms_norm"):
        names = ("scale", "bias") if op == "layer_norm" and draw(st.booleans()) else ("scale",)
        others = [_operand(draw, builder, n, dtype, shape[axis:]) for n in names]
        made = builder.node(op, inner, *others, axis=axis, epsilon=draw(st.sampled_from((1e-5, 1e-2))))
    elif op in ("instance_norm", "group_norm"):
        others = [_operand(draw, builder, n, dtype, shape[1:2]) for n in ("scale", "bias")]
        dividing = [n for n in range(1, 5) if shape[1] % n == 0]
        attrs = {"groups": draw(st.sampled_from(dividing))} if op == "group_norm" else {}
        made = builder.node(op, inner, *others, **attrs)
    elif op == "mvn":
        made = builder.node(op, inner, axes=tuple(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    elif op == "lrn":
        made = builder.node(op, inner, size=draw(st.integers(1, 5)), alpha=0.1)
    else:
        attrs = {"p": draw(st.sampled_from((1, 2)))} if op == "lp_norm" else {}
        made = builder.node(op, inner, axis=axis, **attrs)
    last = _after(draw, builder, made, inner)
    more = tuple(n for n in (made, inner) if n not in builder.views and draw(st.integers(0, 3)) == 0)
    return _case(draw, builder, made, last, more)


@st.composite
def poolings(draw: st.DrawFn) -> Case:
    op = draw(st.sampled_from(("max_pool", "avg_pool", "global_avg_pool", "global_max_pool")))
    builder, spatial = GroupBuilder(), draw(st.integers(1, 3))
    integers = (DType.INT8, DType.UINT8) if op == "max_pool" else ()
    dtype = draw(st.sampled_from((*FLOATS, *integers)))
    plane = tuple(draw(st.integers(3, 11 if spatial < 3 else 5)) for _ in range(spatial))
    shape = (draw(st.integers(1, 2)), draw(st.sampled_from((1, 3, 4, 8, 16))), *plane)
    inner = _operand(draw, builder, "x", dtype, shape, odd="max" in op)
    if draw(st.booleans()) and dtype.is_float:
        inner = _before(draw, builder, inner)
    if op.startswith("global"):
        made = builder.node(op, inner)
        return _case(draw, builder, made, _after(draw, builder, made, made))
    kernel = tuple(draw(st.integers(1, 3)) for _ in plane) if draw(st.integers(0, 4)) else plane
    attrs: dict[str, Any] = {
        "kernel": kernel,
        "strides": tuple(draw(st.integers(1, 3)) for _ in plane),
        "dilations": tuple(
            draw(st.integers(1, 2)) if 2 * (k - 1) < n else 1 for k, n in zip(kernel, plane, strict=True)
        ),
        "pads": tuple(draw(st.integers(0, k - 1)) if kernel != plane else 0 for k in (*kernel, *kernel)),
        "ceil_mode": draw(st.booleans()),
    }
    if op == "avg_pool":
        attrs["count_include_pad"] = draw(st.booleans())
    made = builder.node(op, inner, **attrs)
    last = _after(draw, builder, made, made) if dtype.is_float else made
    return _case(draw, builder, made, last)


# ---- what holds -----------------------------------------------------------------------------------------------------

# A batch shrinks too slowly to be of use; what fails names its kernel, and its sizes are small.
_bounded = settings(
    max_examples=EXAMPLES,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


@_bounded
@given(st.lists(reductions(), min_size=BATCH, max_size=BATCH))
def test_reductions_are_what_the_references_say(cases: list[Case]) -> None:
    check(cases)


@_bounded
@given(st.lists(row_operators(), min_size=BATCH, max_size=BATCH))
def test_operators_along_rows_are_what_the_references_say(cases: list[Case]) -> None:
    check(cases)


@_bounded
@given(st.lists(poolings(), min_size=BATCH, max_size=BATCH))
def test_poolings_are_what_the_references_say(cases: list[Case]) -> None:
    check(cases)


@pytest.mark.parametrize("names", [("held", "softmax"), ("top_part", "total"), ("weight", "share"), ("tile_0", "top")])
def test_values_may_be_named_as_arrays_and_registers_of_kernels_are(names: tuple[str, str]) -> None:
    cases = []
    for op, attrs in (("softmax", {"axis": 1}), ("transpose", {"perm": (1, 0)})):
        for operand, made in (names, names[::-1]):
            builder, type = GroupBuilder(), TensorType(DType.FLOAT32, (48, 64))
            values = np.arange(48 * 64) % 17 / 8
            builder.operand("x", type, values)
            builder.operand(operand, type, -values)
            last = builder.node(op, builder.node("mul", "x", operand), name=made, **attrs)
            view = View.of(f"to_{last}", DType.FLOAT32, builder.types[last].static)
            source = generate(builder.group({last: view}))
            assert source is not None
            cases.append(Case(builder, {last: view}, last, source, False))
    check(cases)


@settings(_bounded, max_examples=4)
@given(st.lists(st.one_of(reductions(), row_operators(), poolings()), min_size=8, max_size=8))
def test_nvrtc_takes_them_within_registers(cases: list[Case]) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from eqsat.runtime.cuda.compiler.nvrtc import compile_cubin

    for place, case in enumerate(cases):
        arch = ("sm_80", "sm_90")[place % 2]
        compiled = compile_cubin(case.source.code, arch)
        LaunchLimits.of(arch).check(case.source, registers=compiled.registers, static=compiled.shared)
        assert (compiled.spill_bytes, compiled.stack) == (0, 0), case.source.text
        assert compiled.registers <= 128, case.source.text
