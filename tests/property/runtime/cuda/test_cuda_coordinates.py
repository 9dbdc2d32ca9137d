"""Coordinates in kernels: however a sum is simplified, it has the value that it stands for, within its bounds."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, IndexVariable, flattened, offset, unflattened
from eqsat.runtime.kernels.writer import CodeWriter


def value(index: AffineIndex, at: dict[str, int]) -> int:
    """What C works out, quotients and remainders cut toward zero as C has them."""

    def named(variable: IndexVariable) -> str:
        if variable.of is None:
            return f"at[{variable.name!r}]"
        inner = value(variable.of, at)
        return str(int(inner / variable.by) if variable.kind == "/" else math.fmod(inner, variable.by))

    return int(eval(index.text(named).replace("(long long)", "").replace("LL", ""), {"at": at}))


@given(st.data())
def test_sums_quotients_and_remainders_have_their_values(data: st.DataObject) -> None:
    sizes = {name: data.draw(st.integers(1, 12)) for name in "ijt"}
    at = {name: data.draw(st.integers(0, size - 1)) for name, size in sizes.items()}
    known = [(AffineIndex.variable(name, size), at[name]) for name, size in sizes.items()]
    for _ in range(data.draw(st.integers(1, 8))):
        (a, x), (b, y) = data.draw(st.sampled_from(known)), data.draw(st.sampled_from(known))
        n = data.draw(st.integers(1, 12))
        made = {"+": (a + b * n, x + y * n), "-": (a - b + n, x - y + n), "*": (a * n + 1, x * n + 1)}
        if a.low >= 0:
            made |= {"/": (a // n, x // n), "%": (a % n, x % n)}
        known.append(made[data.draw(st.sampled_from(sorted(made)))])
    for index, wanted in known:
        assert value(index, at) == wanted
        assert index.low <= wanted <= index.high
        bound = data.draw(st.integers(-24, 24))
        simpler, other = index.compared(bound)
        assert (value(simpler, at) < other) == (wanted < bound)


@given(st.lists(st.integers(1, 5), max_size=4), st.data())
def test_a_reshape_there_and_back_is_none(shape: list[int], data: st.DataObject) -> None:
    count = math.prod(shape)
    other = data.draw(st.permutations([n for n in range(1, 9) if count % n == 0]))[:1]
    split = [*other, count // other[0]] if other else [count]
    i = AffineIndex.variable("i", count)
    assert flattened(unflattened(i, shape), shape) == i
    assert flattened(unflattened(flattened(unflattened(i, split), split), shape), shape) == i
    coords = tuple(AffineIndex.variable(f"c{axis}", size) for axis, size in enumerate(shape))
    assert unflattened(flattened(coords, shape), shape) == coords
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    assert offset(unflattened(i, shape), strides) == i


def test_wide_sums_are_worked_out_in_64_bits() -> None:
    wide = AffineIndex.variable("i", 2**31) * 2 + 3
    assert wide.text(lambda v: v.name) == "(long long)i * 2 + 3"
    assert AffineIndex.number(2**31).text(lambda v: v.name) == "2147483648LL"


def test_what_a_loop_leaves_alone_is_defined_before_it() -> None:
    writer = CodeWriter()
    i, k = AffineIndex.variable("i", 40), AffineIndex.variable("k", 4)
    with writer.loop("for (int k = 0; k < 4; ++k)", "k"):
        with writer.case("if (k > 1)"):
            text = writer.index(i // 7 * 8 + (i + k) // 3)
        assert text == "quotient_0 * 8 + quotient_1"
    before, _, inside = writer.text().partition("for")
    assert "quotient_0" in before and "quotient_1" not in before and "quotient_1 = (i + k) / 3;" in inside
