"""Generated kernels element by element and of what copies elements, on the processor, against the references."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.language.arithmetic.floats import FloatNamespace
from eqsat.language.ops import OPS
from eqsat.language.terms import DType, Node, TensorType
from eqsat.runtime.cuda.compiler.limits import LaunchLimits
from eqsat.runtime.kernels.expressions.elements import is_pointwise
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.movement import MOVES
from eqsat.runtime.kernels.templates.codegen import TEMPLATES, generate
from eqsat.runtime.kernels.view import View
from tests.support.cuda_groups import WITHOUT_TEMPLATE
from tests.support.kernel_chains import INTEGERS, SHAPES, Case, Chain, check, verify

#: A batch is compiled at once; what fails says which group it was, so that nothing is gained by shrinking.
BATCHES = settings(
    max_examples=3, deadline=None, phases=[Phase.generate], derandomize=True, suppress_health_check=list(HealthCheck)
)
FLOATS = ("float32", "float32", "float16", "bfloat16", "float64")
ELEMENTS = sorted(n for n in OPS if is_pointwise(Node(n, (), ())))
NAMES = sorted({*ELEMENTS, *MOVES})
LOGIC = {"and_", "or_", "xor", "not_"}
BITS = {n for n in NAMES if n.startswith("bit")}
#: Those whose operands are better drawn where they are defined.
TAME = {"log", "sqrt", "acosh", "asin", "acos", "atanh", "tan", "pow"}
#: Of integers as well, where they wrap around.
WHOLE = {"add", "sub", "mul", "div", "mod", "maximum", "minimum", "equal", "less", "where", "clip", "abs", "neg"} | BITS
WHOLE |= {"sign", "relu", "greater_equal"}
#: A rounding more or less moves what these make by far; or what they make grows so fast that it says nothing.
STEPS = {"floor", "ceil", "round", "sign", "equal", "less", "less_equal", "greater", "greater_equal", "mod", "isinf"}
STEPS |= {
    "isnan",
    "cast",
    "quantize_linear",
    "thresholded_relu",
    "shrink",
    "exp",
    "sinh",
    "cosh",
    "reciprocal",
    "div",
    "batch_norm",
}
SMOOTH = sorted(set(NAMES) - STEPS - TAME - BITS - {"shape", "size"})
CASTS = (*INTEGERS, "bool", "float16", "bfloat16", "float32", "float64")


def alone(op: str, rng: random.Random) -> Case:
    """A group of one operator, its operands drawn until they fit."""
    while True:
        dtype = "bool" if op in LOGIC else rng.choice(INTEGERS) if op in BITS else rng.choice(FLOATS)
        special = rng.random() < 0.4 and op not in ("cast", "pow")
        chain = Chain(rng, dtype, special=special, tame=op in TAME and rng.random() < 0.8)
        attrs = {"to": rng.choice(("float32", "float64", "int32", "bool", "float16", "uint8"))} if op == "cast" else {}
        if chain.add(op, rng.choice(SHAPES), attrs):
            return chain.case()


def chained(names: list[str], rng: random.Random, chain: Chain) -> Case:
    """A group of up to five operators, each of what the last one made."""
    wanted = rng.randint(2, 5)
    while not chain.nodes:
        chain.add(rng.choice(names), rng.choice(SHAPES))
    for _ in range(4 * wanted):
        if len(chain.nodes) < wanted:
            chain.add(rng.choice(names))
    return chain.case()


@BATCHES
@given(st.integers(0, 2**32))
def test_every_operator_alone(seed: int) -> None:
    rng = random.Random(seed)
    check([alone(op, rng) for op in NAMES for _ in range(2)], descending=bool(seed % 2))


@BATCHES
@given(st.integers(0, 2**32))
def test_operators_one_after_the_other(seed: int) -> None:
    rng = random.Random(seed)
    check([chained(SMOOTH, rng, Chain(rng, rng.choice(FLOATS), special=rng.random() < 0.3)) for _ in range(120)])


@BATCHES
@given(st.integers(0, 2**32))
def test_integers_wrap_around(seed: int) -> None:
    rng = random.Random(seed)
    names = sorted(WHOLE | (set(MOVES) - {"shape", "size", "iota"}))
    check([chained(names, rng, Chain(rng, rng.choice(INTEGERS), special=True)) for _ in range(100)])


def test_powers_of_integers() -> None:
    rng = random.Random(1)
    cases = []
    for dtype in INTEGERS:
        for _ in range(3):
            chain = Chain(rng, dtype)
            assert chain.apply("pow", [(5, 7), (7,)], {})
            exponents = chain.arrays["x1"]
            if not np.all(chain.arrays["x0"]):  # 0 to a negative power is no integer
                exponents[...] = np.abs(exponents.astype(np.int64)).astype(exponents.dtype)
            if rng.random() < 0.5:
                exponents[...] = np.abs(exponents.astype(np.int64)).astype(exponents.dtype)
            with np.errstate(all="ignore"):
                wanted = FloatNamespace().power(chain.arrays["x0"], exponents)
            case = chain.case()
            cases.append(replace(case, wanted={"v0_0": wanted}))
    check(cases)


def test_casts_between_all_element_types() -> None:
    rng = random.Random(0)
    cases = []
    for source in CASTS:
        for target in CASTS:
            chain = Chain(rng, source)
            assert chain.apply("cast", [rng.choice(((3, 5), (4, 8)))], {"to": target})
            if source in ("float16", "bfloat16", "float32", "float64") and target.startswith("uint"):
                chain.arrays["x0"][...] = np.abs(chain.arrays["x0"])
            with np.errstate(all="ignore"):
                wanted = FloatNamespace().cast(chain.arrays["x0"], DType.of(target))
            cases.append(replace(chain.case(), wanted={"v0_0": wanted}))
    check(cases)


@pytest.mark.parametrize("quantised", ["int8", "uint8", "int16", "uint16"])
def test_quantisation_by_one_scale_by_scales_along_an_axis_and_in_blocks(quantised: str) -> None:
    rng, cases = random.Random(quantised), []
    ways = [((4, 6), (), {}), ((4, 6), (1,), {}), ((4, 6), (6,), {"axis": 1}), ((4, 6), (4,), {"axis": -2})]
    ways += [((4, 6), (4, 2), {"axis": 1, "block": 3}), ((5, 6), (2, 6), {"axis": 0, "block": 4})]
    for shape, scale, attrs in ways:
        for dtype in ("float32", "float16", "float64"):
            for special in (False, True):
                chain = Chain(rng, dtype, special=special)
                made = {"to": quantised, **attrs}
                kinds = [dtype, dtype, quantised]
                assert chain.apply("quantize_linear", [shape, scale, scale], made, None, kinds)
                assert chain.apply("neg", [shape], {}, [chain.last], [quantised])
                cases.append(chain.case())
                chain = Chain(rng, dtype, special=special)
                kinds = [quantised, dtype, quantised]
                count = rng.choice((2, 3))
                assert chain.apply("dequantize_linear", [shape, scale, scale][:count], attrs, None, kinds[:count])
                assert chain.apply("relu", [shape], {}, [chain.last], [dtype])
                cases.append(chain.case())
    check(cases)


def test_sequences_longer_than_their_axis_and_of_no_length_are_reversed() -> None:
    cases = []
    for batch in (0, 1):
        chain = Chain(random.Random(batch), "float32")
        axes = {"batch_axis": batch, "time_axis": 1 - batch}
        assert chain.apply("reverse_sequence", [(5, 5, 2), (5,)], axes, None, ["float32", "int64"])
        chain.arrays["x1"][...] = chain.values["x1"][...] = [0, 1, 3, 5, 9] if batch else [-2, 5, 4, 2, 7]
        wanted = OPS["reverse_sequence"].reference(FloatNamespace(), chain.values["x0"], chain.arrays["x1"], **axes)
        cases.append(replace(chain.case(), wanted={"v0_0": wanted}))
    check(cases)


# ---- what kernels look like -----------------------------------------------------------------------------------------


def node(op: str, inputs: str, output: str, **attrs: object) -> Node:
    return Node(op, tuple(inputs.split()), (output,), OPS[op].complete(attrs))


def group(nodes: list[Node], types: dict[str, TensorType], views: dict[str, View] | None = None) -> Group:
    made = {o for n in nodes for o in n.outputs}
    read = {v for n in nodes for v in n.inputs}
    held = {n: (views or {}).get(n) or View.of(n, t.dtype, t.static) for n, t in types.items()}
    operands = {n: v for n, v in held.items() if n not in made}
    return Group(tuple(nodes), types, operands, {n: held[n] for n in made - read})


def biased(dtype: str, shape: tuple[int, ...] = (4, 96), **views: View) -> Group:
    types = {n: TensorType.of(dtype, shape) for n in "xsy"} | {"b": TensorType.of(dtype, shape[-1:])}
    return group([node("add", "x b", "s"), node("relu", "s", "y")], types, views)


def moved(dtype: str, shape: tuple[int, ...], op: str, result: tuple[int, ...], **attrs: object) -> Group:
    types = {"x": TensorType.of(dtype, shape), "y": TensorType.of(dtype, result)}
    return group([node(op, "x", "y", **attrs)], types)


def verified(made: Group) -> str:
    """The code of a group's kernel, which is run and compared first."""
    chain = Chain(random.Random(0), "float32")
    arrays = {n: chain.elements(made.types[n]) for n in made.operands}
    values = {n: a.astype(np.float64) if made.types[n].dtype.is_float else a for n, a in arrays.items()}
    for each in made.nodes:
        result = OPS[each.op].reference(FloatNamespace(), *(values[str(v)] for v in each.inputs), **each.attrs)
        values |= dict(zip(each.outputs, result if isinstance(result, tuple) else (result,), strict=True))
    source = generate(made)
    assert source is not None
    verify(Case(made, arrays, {n: values[n] for n in made.results}, 8.0), source)
    return source.code


@pytest.mark.parametrize(("dtype", "width"), [("float16", 8), ("bfloat16", 8), ("float32", 4), ("float64", 2)])
def test_sixteen_bytes_move_in_one_access(dtype: str, width: int) -> None:
    code = verified(biased(dtype))
    assert code.count(f"load<{width}>(") == 2 and code.count(f"store<{width}>(") == 1
    # A byte moves in an access of its own where there is nothing else.
    types = {n: TensorType.of(dtype, (4, 96)) for n in "ab"} | {"y": TensorType.of("bool", (4, 96))}
    assert f"load<{width}>(" in verified(group([node("less", "a b", "y")], types))


def test_what_lies_apart_or_askew_is_read_alone() -> None:
    whole = View.of("x", DType.FLOAT16, (4, 97))
    assert "load<" not in verified(biased("float16", x=whole.sliced(1, 0, 96)))
    assert "load<4>" in verified(biased("float16", x=replace(View.of("x", DType.FLOAT16, (4, 96)), offset=4)))
    assert "load<" not in verified(biased("float16", x=replace(View.of("x", DType.FLOAT16, (4, 96)), offset=3)))
    assert "load<" not in verified(biased("float16", x=View.of("x", DType.FLOAT16, (4, 96)).sliced(1, 95, 96, -1)))
    # Axes that one stride walks are one: 7 · 13 elements are no multiple, 8 · 7 · 13 are.
    assert "load<8>" in verified(moved("float16", (8, 7, 13), "neg", (8, 7, 13)))
    repeated = replace(View.of("x", DType.FLOAT16, (4, 96)), strides=(0, 1))
    arrays = biased("float16", x=repeated)
    assert "in0_pack" in generate(arrays).code  # type: ignore[union-attr]


def test_parts_are_read_together_where_a_condition_holds_for_all_of_them() -> None:
    half = TensorType.of("float16", (6, 32))
    types = {"a": half, "b": half, "n": half, "y": TensorType.of("float16", (6, 64))}
    code = verified(group([node("neg", "b", "n"), node("concat", "n a", "y", axis=1)], types))
    assert code.count("load<8>(") == 2 and "? load" in code
    types = {"a": TensorType.of("float16", (6, 31)), "b": half, "y": TensorType.of("float16", (6, 63))}
    assert "? load" not in verified(group([node("concat", "a b", "y", axis=1)], types))
    assert "? load<4>" in verified(moved("float32", (3, 5, 8), "pad", (3, 7, 8), pads=(0, 1, 0, 0, 1, 0)))


def test_transposes_go_through_tiles() -> None:
    for dtype in ("float32", "float16", "int8", "float64"):
        code = verified(moved(dtype, (3, 40, 7, 9), "transpose", (3, 7, 9, 40), perm=(0, 2, 3, 1)))
        assert "__shared__" in code and "p < 63 && q < 40" in code
    assert "__shared__" in verified(moved("float32", (65, 70), "transpose", (70, 65), perm=(1, 0)))
    assert "load<4>" in verified(moved("float32", (6, 20, 4, 8), "transpose", (6, 4, 20, 8), perm=(0, 2, 1, 3)))
    # Held with its channels last, the result is what is read.
    last = View.of("y", DType.FLOAT32, (70, 65), (1, 0))
    made = moved("float32", (65, 70), "transpose", (70, 65), perm=(1, 0))
    assert "__shared__" not in verified(replace(made, results={"y": last}))


@pytest.mark.parametrize(("dtype", "tiles"), [("float32", 11), ("float64", 5), ("float16", 14)])
def test_tiles_take_no_more_memory_than_a_block_has(dtype: str, tiles: int) -> None:
    names = [f"x{number}" for number in range(14)]
    types = {name: TensorType.of(dtype, (70, 65)) for name in (*names, *(f"s{n}" for n in range(1, 14)))}
    views = {name: View.of(name, DType(dtype), (70, 65), (1, 0)) for name in names}
    sums = [node("maximum", f"{'x0' if n == 1 else f's{n - 1}'} x{n}", f"s{n}") for n in range(1, 14)]
    code = verified(group(sums, types, views))
    shared = re.findall(r"__shared__ \w+ \w+\[(\d+)\]\[(\d+)\];", code)
    assert len(shared) == tiles
    assert sum(int(rows) * int(columns) for rows, columns in shared) * DType(dtype).itemsize <= 48 << 10


def test_coordinates_take_64_bits_where_they_must() -> None:
    huge = moved("float16", (3, 2**31), "neg", (3, 2**31))
    source = generate(huge)
    assert source is not None and "(long long)t * 8" in source.code and source.grid[0] < 2**31
    wide = replace(huge, operands={"x": View.of("x", DType.FLOAT16, (3, 2**31)).sliced(1, 5, 2**31)})
    assert "const long long" in generate(moved("int8", (7, 2**31 + 1), "abs", (7, 2**31 + 1))).code  # type: ignore[union-attr]
    assert generate(wide) is not None


def test_equal_kernels_have_equal_code_and_names_stand_in_the_comment() -> None:
    first, second = generate(biased("float16")), generate(biased("float16"))
    assert first is not None and first == second
    assert first.entry == "add_relu_f16" and "s = add(x, b)" in first.text and "s = add" not in first.code
    assert first.arguments == ("x", "b", "y")


def test_a_wrong_kernel_is_found() -> None:
    chain = Chain(random.Random(2), "float32")
    assert chain.apply("sub", [(3, 5), (5,)], {})
    case = chain.case()
    source = generate(case.group)
    assert source is not None
    verify(case, source)
    for right, wrong in ((" - in1_at_0", " + in1_at_0"), (">= 15", ">= 14"), ("out0[", "out0[16 + ")):
        assert right in source.code
        with pytest.raises(AssertionError):
            verify(case, replace(source, code=source.code.replace(right, wrong)))


def test_the_operators_without_a_template_are_these() -> None:
    """All that is here is computed by kernels of its statements, or run by its reference, on CuPy's own functions."""
    missing = set()
    for op in OPS:
        found = alone(op, random.Random(op)) if op in NAMES else None
        if found is None and op not in TEMPLATES:
            missing.add(op)
        if found is not None:
            assert generate(found.group) is not None, op
    # What operators with kernels do in their place, attention also cuDNN.
    assert missing == WITHOUT_TEMPLATE | {"attention", "matmul_packed"}


def test_what_users_declare_has_a_kernel_where_it_is_arithmetic() -> None:
    @eqsat.op(pointwise=True)
    def smooth_step(xp, x, y, *, edge: float = 0.5):  # type: ignore[no-untyped-def]
        held = xp.minimum(xp.maximum(x, xp.number(0.0, x)), xp.number(1.0, x))
        cubic = held * held * (3.0 - 2.0 * held)
        return np.where(np.abs(y) > edge, np.tanh(cubic), np.logical_not(y < 0) * cubic)

    @eqsat.op(pointwise=True)
    def looked_up(xp, x):  # type: ignore[no-untyped-def]
        return np.asarray([1.0, 2.0])[np.clip(x, 0, 1).astype(int)]

    cases = []
    for dtype in ("float32", "float16", "float64"):
        chain = Chain(random.Random(3), dtype, special=True)
        assert chain.apply("smooth_step", [(3, 8), (8,)], {"edge": 0.25})
        cases.append(chain.case())
    check(cases)
    assert generate(moved("float32", (4,), "looked_up", (4,))) is None


def test_nvrtc_compiles_them_within_bounds() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from eqsat.runtime.cuda.compiler.nvrtc import compile_cubin

    groups = [biased(dtype, (4, 768)) for dtype in ("float16", "bfloat16", "float32", "float64")]
    groups += [moved("float16", (64, 96), "transpose", (96, 64), perm=(1, 0))]
    groups += [moved("float32", (2, 3, 8, 8), "pad", (2, 3, 10, 11), pads=(0, 0, 1, 1, 0, 0, 1, 2), mode="reflect")]
    groups += [moved("float16", (64, 96), op, (64, 96)) for op in ("gelu", "mish", "tanh", "erf", "round", "sigmoid")]
    groups += [moved("float64", (64, 96), op, (64, 96)) for op in ("exp", "softplus", "atanh")]
    rng = random.Random(5)
    groups += [
        alone(op, rng).group for op in ("pow", "mod", "div", "gather", "scatter_elements", "concat", "batch_norm")
    ]
    groups += [chained(SMOOTH, rng, Chain(rng, "float32")).group for _ in range(6)]
    for made in groups:
        source = generate(made)
        assert source is not None
        for arch in ("sm_80", "sm_90"):
            compiled = compile_cubin(source.code, arch)
            assert not compiled.spill_bytes and compiled.registers <= 128, source.text
            LaunchLimits.of(arch).check(source, registers=compiled.registers, static=compiled.shared)
