"""The largest and smallest elements along an axis, on the processor, against the reference: NaN, equal ones, views."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from eqsat.runtime.cuda.compiler.limits import LaunchLimits
from eqsat.runtime.kernels.nests.gpu_groups.selections import MOST_ELEMENTS
from eqsat.runtime.kernels.templates.codegen import generate
from tests.support.kernel_chains import INTEGERS, Case, Chain, check

BATCHES = settings(
    max_examples=3, deadline=None, phases=[Phase.generate], derandomize=True, suppress_health_check=list(HealthCheck)
)
TYPES = (*INTEGERS, "float32", "float16", "bfloat16", "float64")
SHAPES = ((5,), (40,), (3, 7), (2, 33, 3), (1, 300), (4, 1), (0, 4), (2, 70))


def selection(rng: random.Random) -> Case:
    """A selection of elements many of which are equal, of what an operator made, or moved by one."""
    chain = Chain(rng, rng.choice(TYPES), special=rng.random() < 0.5)
    shape = rng.choice(SHAPES)
    if rng.random() < 0.3:
        assert chain.apply("relu", [shape], {})
    axis = rng.randrange(len(shape))
    count = rng.choice((0, 1, shape[axis], rng.randint(0, shape[axis])))
    attrs = {"axis": axis, "largest": rng.random() < 0.5, "k": min(count, shape[axis])}
    assert chain.apply("topk", [shape], attrs, [chain.last])
    if rng.random() < 0.3:
        chain.add("transpose")
    return chain.case()


@BATCHES
@given(st.integers(0, 2**32))
def test_elements_in_order_and_their_places(seed: int) -> None:
    rng = random.Random(seed)
    check([selection(rng) for _ in range(60)], descending=bool(seed % 2))


def test_long_rows_are_left_to_others() -> None:
    for size, taken in ((MOST_ELEMENTS, True), (MOST_ELEMENTS + 1, False)):
        chain = Chain(random.Random(0), "float32")
        assert chain.apply("topk", [(1, size)], {"k": 3})
        assert (generate(chain.case().group) is not None) == taken


def test_nvrtc_compiles_them_within_bounds() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from eqsat.runtime.cuda.compiler.nvrtc import compile_cubin

    rng = random.Random(3)
    for _ in range(6):
        source = generate(selection(rng).group)
        assert source is not None
        for arch in ("sm_80", "sm_90"):
            compiled = compile_cubin(source.code, arch)
            assert not compiled.spill_bytes and compiled.registers <= 128, source.text
            LaunchLimits.of(arch).check(source, registers=compiled.registers, static=compiled.shared)
