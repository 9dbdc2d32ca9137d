"""Products, convolutions and sums of products without a library, on the processor, against the references."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from eqsat.runtime.cuda.compiler.limits import LaunchLimits
from eqsat.runtime.kernels.nests.gpu_groups.squares import DEPTH, SQUARE
from eqsat.runtime.kernels.nests.gpu_groups.sums import SUMS
from eqsat.runtime.kernels.templates.codegen import generate
from tests.support.kernel_chains import INTEGERS, Case, Chain, check

BATCHES = settings(
    max_examples=3, deadline=None, phases=[Phase.generate], derandomize=True, suppress_health_check=list(HealthCheck)
)
FLOATS = ("float32", "float32", "float16", "bfloat16", "float64")
#: What is worked out before a product, as it is read, and after it.
AROUND = (
    "relu",
    "add",
    "gelu",
    "mul",
    "sigmoid",
    "tanh",
    "sub",
    "maximum",
    "neg",
    "transpose",
    "reshape",
    "where",
    "silu",
)
AROUND_INTEGERS = ("relu", "add", "mul", "sub", "maximum", "neg", "transpose", "reshape")
EQUATIONS = ("ij,jk->ik", "bhid,bhjd->bhij", "...ij,...jk->...ik", "ii->i", "ij,ij", "i,ij,j->", "ij->ji", "ijk->ik")


def product(chain: Chain, op: str) -> bool:
    """Adds a product of any kind, on its own operands."""
    rng = chain.rng
    if op == "conv" or op == "conv_transpose":
        return convolution(chain, op)
    if op == "einsum" and rng.random() < 0.5:
        return chain.add(op, None, {"equation": rng.choice(EQUATIONS)})
    if op == "einsum":
        equation = rng.choice(("bmk,bnk->bmn", "mkb,bkn->nmb", "kbm,kn->bmn", "mjk,njk->mn"))
        sizes = {"m": rng.choice((3, 40)), "n": rng.choice((24, 33)), "b": 2, "k": rng.choice((4, 9)), "j": 2}
        terms = equation.partition("->")[0].split(",")
        return chain.apply(op, [tuple(sizes[i] for i in term) for term in terms], {"equation": equation})
    rows, columns = rng.choice(((5, 7), (33, 70), (64, 24), (1, 40), (130, 26), (3, 0)))
    depth = rng.choice((1, 8, 17, 33, 0))
    if op == "matmul":
        lead, other = rng.choice((((), ()), ((2,), ()), ((2, 1), (3,)), ((), (2,)), ((2,), (1,))))
        left = rng.choice(((*lead, rows, depth), (*lead, rows, depth), (depth,)))
        right = rng.choice(((*other, depth, columns), (*other, depth, columns), (depth,)))
        return chain.apply(op, [left, right], {})
    turned = {"trans_a": rng.random() < 0.4, "trans_b": rng.random() < 0.4}
    scales = {"alpha": rng.choice((1.0, 2.0, -1.0)), "beta": rng.choice((1.0, 2.0))}
    left = (depth, rows) if turned["trans_a"] else (rows, depth)
    right = (columns, depth) if turned["trans_b"] else (depth, columns)
    addends = [(columns,), (rows, columns), (1, columns), (rows, 1), (), None]
    addend = rng.choice(addends)
    return chain.apply(op, [left, right, *([addend] if addend is not None else [])], {**turned, **scales})


def convolution(chain: Chain, op: str) -> bool:
    """Adds a convolution of a line, a plane or a space, or its adjoint."""
    rng = chain.rng
    rank, groups = rng.choice((1, 2, 2, 3)), rng.choice((1, 1, 2, 3))
    inner, outer, most = rng.randint(1, 3), rng.randint(1, 3), 6
    if rng.random() < 0.3 and rank < 3:
        inner, outer, most = 4, rng.choice((24, 30)), 9
    kernel = [rng.randint(1, 3) for _ in range(rank)]
    strides = [rng.randint(1, 3) for _ in range(rank)]
    attrs = {
        "strides": tuple(strides),
        "dilations": tuple(rng.randint(1, 2) for _ in range(rank)),
        "pads": tuple(rng.randint(0, 2) for _ in range(2 * rank)),
        "group": groups,
    }
    image = (rng.randint(1, 2), inner * groups, *(rng.randint(2, most) for _ in range(rank)))
    if op == "conv":
        attrs["activation"] = rng.choice(("none", "relu"))
        filters = (outer * groups, inner, *kernel)
    else:
        attrs["output_padding"] = tuple(rng.randrange(s) for s in strides)
        filters = (inner * groups, outer, *kernel)
    bias = [(outer * groups,)] if rng.random() < 0.5 else []
    return chain.apply(op, [image, filters, *bias], attrs)


def drawn(rng: random.Random, op: str) -> Case:
    """A product, and up to three operators after it that the same kernel computes."""
    while True:
        whole = rng.random() < 0.25
        chain = Chain(rng, rng.choice(INTEGERS) if whole else rng.choice(FLOATS))
        if product(chain, op):
            break
    for _ in range(rng.choice((0, 0, 1, 2, 3))):
        chain.add(rng.choice(AROUND_INTEGERS if whole else AROUND))
    return chain.case()


@BATCHES
@given(st.integers(0, 2**32))
def test_products_and_what_follows_them(seed: int) -> None:
    rng = random.Random(seed)
    check([drawn(rng, op) for op in SUMS for _ in range(14)], descending=bool(seed % 2))


@BATCHES
@given(st.integers(0, 2**32))
def test_what_comes_before_a_product_is_worked_out_as_it_is_read(seed: int) -> None:
    rng = random.Random(seed)
    cases = []
    while len(cases) < 40:
        chain = Chain(rng, rng.choice(FLOATS))
        chain.add(rng.choice(AROUND), rng.choice(((33, 40), (2, 24, 30), (1, 2, 5, 6))))
        if chain.add(rng.choice(sorted(SUMS))):
            chain.add(rng.choice(AROUND))
            cases.append(chain.case())
    check(cases)


def tiled(dtype: str, rows: int, depth: int, columns: int, after: tuple[str, ...] = ()) -> Case:
    chain = Chain(random.Random(7), dtype)
    assert chain.apply("matmul", [(2, rows, depth), (depth, columns)], {})
    for op in after:
        assert chain.add(op)
    return chain.case()


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "uint64", "int32"])
def test_large_products_go_through_shared_memory(dtype: str) -> None:
    sizes = ((SQUARE, DEPTH, SQUARE), (SQUARE + 1, DEPTH + 1, SQUARE - 1), (2 * SQUARE, 2 * DEPTH - 1, 24))
    cases = [tiled(dtype, *size) for size in sizes] + [tiled(dtype, 40, 20, 70, ("add", "relu"))]
    for case in cases:
        source = generate(case.group)
        assert source is not None and "__syncthreads" in source.code
    for descending in (False, True):
        check(cases, descending=descending)


def test_convolutions_and_sums_of_products_go_through_shared_memory_as_well() -> None:
    cases = []
    for dtype in ("float32", "bfloat16", "int16"):
        for attrs in (
            {"pads": (1, 1, 1, 1)},
            {"strides": (2, 1), "group": 2, "activation": "relu"},
            {"dilations": (2, 1)},
        ):
            chain, groups = Chain(random.Random(5), dtype), int(attrs.get("group", 1))
            assert chain.apply("conv", [(2, 3 * groups, 9, 8), (30 * groups, 3, 3, 2), (30 * groups,)], attrs)
            chain.add("relu")
            cases.append(chain.case())
        chain = Chain(random.Random(6), dtype)
        assert chain.apply("einsum", [(2, 9, 3, 30), (2, 25, 3, 9)], {"equation": "bkhi,bjhk->bhij"})
        cases.append(chain.case())
    for case in cases:
        source = generate(case.group)
        assert source is not None and "__syncthreads" in source.code
    check(cases, descending=True)


def test_small_products_take_a_thread_each() -> None:
    source = generate(tiled("float32", 5, 40, 70).group)
    assert source is not None and "__syncthreads" not in source.code


def test_two_products_are_no_kernel() -> None:
    chain = Chain(random.Random(0), "float32")
    assert chain.apply("matmul", [(4, 5), (5, 6)], {}) and chain.apply("matmul", [(4, 6), (6, 2)], {}, ["v0_0", None])
    assert generate(chain.case().group) is None


def test_nvrtc_compiles_them_within_bounds() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from eqsat.runtime.cuda.compiler.nvrtc import compile_cubin

    rng = random.Random(11)
    cases = [drawn(rng, op) for op in SUMS for _ in range(2)]
    cases += [tiled(dtype, 100, 64, 96, ("add", "gelu")) for dtype in ("float16", "bfloat16", "float32", "float64")]
    cases += [tiled(dtype, 100, 64, 96) for dtype in ("int8", "int64")]
    for dtype in ("float16", "float32", "float64", "int64"):
        chain = Chain(rng, dtype)
        plane = {"pads": (1, 1, 1, 1), "strides": (2, 2), "activation": "relu"}
        assert chain.apply("conv", [(1, 16, 20, 28), (40, 16, 3, 3), (40,)], plane)
        cases.append(chain.case())
    for case in cases:
        source = generate(case.group)
        assert source is not None
        for arch in ("sm_80", "sm_90"):
            compiled = compile_cubin(source.code, arch)
            assert not compiled.spill_bytes and compiled.registers <= 128, source.text
            LaunchLimits.of(arch).check(source, registers=compiled.registers, static=compiled.shared)
