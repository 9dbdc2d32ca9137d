"""Laws of operators that an attribute gives their axes: they commute with movement along the others.

Reductions drop the axes, or keep them with one element; softmax and its like compute their elements from one another;
normalisations do so from an axis on.
"""

from __future__ import annotations

from collections.abc import Iterator

from eqsat.rewrites.schemas.operator import Operator, Statement, law, loop
from eqsat.rewrites.schemas.reductions import reduction_laws

#: Functions of one element that networks apply around a change of size.
_ACTIVATIONS = ("relu", "sigmoid", "silu", "tanh")
_ALIKE = "all(without(shape(x), {k}) == without(shape(xs[0]), {k}) for x in xs)"


def axis_laws(op: Operator) -> Iterator[Statement]:
    """Laws that follow from an attribute that names axes."""
    first = op.form.operands[0]
    if not first.attribute:
        return
    if first.tail:
        yield from _from_an_axis_on(op, first.attribute)
    elif len(op.form.terms) > 1:
        return
    elif not op.form.result.attribute:
        if "keepdims" in op.spec.attrs and first.attribute == "axes":
            yield from _reduction(op)
            yield from reduction_laws(op)
    elif first.attribute == "axis":
        yield from _mixed(op)
    elif first.attribute == "axes":
        yield from _resampled(op)


def _reduction(op: Operator) -> Iterator[Statement]:
    f = op.name
    keeping, dropped = "axes=a, keepdims=True", "axes=a, keepdims=False"
    yield from law(
        f"{f}-of-transpose",
        f"{f}(transpose(x, perm=p), {keeping})",
        f"transpose({f}(x, axes=mapped(a, p), keepdims=True), perm=p)",
    )
    yield from law(
        f"{f}-of-transpose-dropped",
        f"{f}(transpose(x, perm=p), {dropped})",
        f"transpose({f}(x, axes=mapped(a, p), keepdims=False), perm=dropped_perm(p, a))",
    )
    yield from law(
        f"transpose-of-{f}",
        f"transpose({f}(x, {keeping}), perm=p)",
        f"{f}(transpose(x, perm=p), axes=mapped(a, inverse(p)), keepdims=True)",
    )
    yield from law(
        f"{f}-keeps",
        f"{f}(x, {dropped})",
        f"reshape({f}(x, {keeping}), shape=without_all(shape(x), a))",
        back="expand",
    )
    yield from law(
        f"{f}-of-concat",
        f"{f}(concat(*xs, axis=k), {keeping})",
        f"concat(*[{f}(x, {keeping}) for x in xs], axis=k)",
        ["k not in a", _ALIKE.format(k="k")],
        back="expand",
    )
    yield from law(
        f"{f}-of-slice",
        f"{f}(slice(x, **s), {keeping})",
        f"slice({f}(x, {keeping}), **s)",
        ["not any(k in a for k in s.axes)"],
        back="expand",
    )
    if 0 in op.spec.multilinear and "axes" not in op.form.reads:
        yield from law(
            f"{f}-of-joined-axis",
            f"{f}(concat(x, y, axis=k), axes=a, keepdims=d)",
            f"{f}(x, axes=a, keepdims=d) + {f}(y, axes=a, keepdims=d)",
            ["k in a", "wide(x)"],
        )


def _mixed(op: Operator) -> Iterator[Statement]:
    f = op.name
    rest = ", **a" if len(op.spec.attrs) > 1 else ""
    yield from law(
        f"{f}-of-transpose", f"{f}(transpose(x, perm=p), axis=k{rest})", f"transpose({f}(x, axis=p[k]{rest}), perm=p)"
    )
    yield from law(
        f"transpose-of-{f}",
        f"transpose({f}(x, axis=k{rest}), perm=p)",
        f"{f}(transpose(x, perm=p), axis=place(p, k){rest})",
    )
    yield from law(
        f"{f}-of-concat",
        f"{f}(concat(*xs, axis=j), axis=k{rest})",
        f"concat(*[{f}(x, axis=k{rest}) for x in xs], axis=j)",
        ["j != k"],
        back="expand",
    )
    yield from law(
        f"{f}-of-slice",
        f"{f}(slice(x, **s), axis=k{rest})",
        f"slice({f}(x, axis=k{rest}), **s)",
        ["k not in s.axes"],
        back="expand",
    )
    yield from law(
        f"{f}-of-reshape",
        f"{f}(reshape(x, shape=s), axis=k{rest})",
        f"reshape({f}(x, axis=rank(x) - 1{rest}), shape=s)",
        ["k == len(s) - 1", "keeps_last(x, s)"],
    )
    for title, left, right, axis in (
        (
            f"{f}-of-reshape-around",
            "{f}(reshape(x, shape=s), axis=k{rest})",
            "reshape({inner}, shape=s)",
            "shape(x), s",
        ),
        (f"reshape-of-{f}", "reshape({f}(x, axis=k{rest}), shape=s)", "{outer}", "s, shape(x)"),
    ):
        place = f"kept_axes({axis}, (k,))[0]"
        inner = f"{f}(x, axis={place}{rest})"
        outer = f"{f}(reshape(x, shape=s), axis={place}{rest})"
        sides = (side.format(f=f, rest=rest, inner=inner, outer=outer) for side in (left, right))
        yield from law(title, *sides, phase="associate")
    spread = "broadcast(shape(x), s)"
    below = f"lowered((k,), len({spread}) - rank(x))[0]"
    yield from law(
        f"{f}-of-expand",
        f"{f}(expand(x, shape=s), axis=k{rest})",
        f"expand({f}(x, axis={below}{rest}), shape=s)",
        [f"dim(x, {below}) == {spread}[k]"],
        phase="associate",
    )


def _resampled(op: Operator) -> Iterator[Statement]:
    """Several axes are mixed, or given another size; the others are walked in step.

    Runtimes know interpolation along the last axes best, so only what copies elements moves to any others.
    """
    f, whole = op.name, op.applied("x")
    yield from law(
        f"concat-of-{f}",
        f"concat(*[{whole} for x in xs], axis=k)",
        op.applied("concat(*xs, axis=k)"),
        ["k not in a.axes", _ALIKE.format(k="k")],
        back="associate",
        back_name=f"{f}-over-concat",
    )
    yield from law(
        f"{f}-of-slice",
        op.applied("slice(x, **s)"),
        f"slice({whole}, **s)",
        ["not any(k in a.axes for k in s.axes)"],
        back="expand",
    )
    if op.spec.movement:
        yield from _turned(op)
        for g in _ACTIVATIONS:
            yield from law(f"{g}-of-{f}", f"{g}({whole})", op.applied(f"{g}(x)"), back="expand")
    if op.linear:
        yield from _channels_apart(op)


def _turned(op: Operator) -> Iterator[Statement]:
    f, rest = op.name, ", **a" if len(op.spec.attrs) > 1 else ""
    yield from law(
        f"{f}-of-transpose",
        f"{f}(transpose(x, perm=p), axes=k{rest})",
        f"transpose({f}(x, axes=permuted(p, k){rest}), perm=p)",
    )
    yield from law(
        f"transpose-of-{f}",
        f"transpose({f}(x, axes=k{rest}), perm=p)",
        f"{f}(transpose(x, perm=p), axes=permuted(inverse(p), k){rest})",
    )


def _channels_apart(op: Operator) -> Iterator[Statement]:
    """A convolution at single places mixes channels; an operator that is linear along other axes mixes places."""
    points = "strides=(1, 1), pads=(0, 0, 0, 0), dilations=d, group=g, activation='none'"
    sums = [] if op.spec.movement else ["wide(x)", "finite(x, w)"]
    yield from law(
        f"conv-of-{op.name}",
        f"conv({op.applied('x')}, w, {points})",
        op.applied(f"conv(x, w, {points})"),
        ["shape(w)[2:] == (1, 1)", "not any(k < 2 for k in a.axes)", *sums],
        back="expand",
    )


def _from_an_axis_on(op: Operator, attribute: str) -> Iterator[Statement]:
    """Axes before the one named are walked in step; parameters must not reach them."""
    f, others = op.name, op.variables[1:]
    if [t.tail for t in op.form.additions] == [op.form.result.tail]:
        plain = op.applied("x", *others)
        yield from law(f"{f}-bias-apart", op.applied("x", *others, "b"), f"{plain} + b", ["wide(x)"], phase="associate")
        yield from law(
            f"{f}-bias-into",
            f"{plain} + b",
            op.applied("x", *others, "b"),
            ["spans(x, b)", f"rank(b) <= rank(x) - a.{attribute}", "wide(x)"],
            phase="associate",
        )
    for added in ((), ("b",)) if op.form.additions else ((),):
        rest = (*others, *added)
        suffix = "-with-bias" if added else ""
        within = [f"rank({v}) <= rank({{x}}) - a.{attribute}" for v in rest]
        moved = op.applied("slice(x, **s)", *rest)
        free = [f"all(k < a.{attribute} for k in s.axes)", *(w.format(x="x") for w in within)]
        yield from law(f"slice-of-{f}{suffix}", f"slice({op.applied('x', *rest)}, **s)", moved, free, back="associate")
        yield from law(
            f"concat-of-{f}{suffix}",
            f"concat(*[{op.applied('x', *rest)} {loop(['x'])}], axis=k)",
            op.applied("concat(*xs, axis=k)", *rest),
            [f"k < a.{attribute}", _ALIKE.format(k="k"), *(w.format(x="xs[0]") for w in within)],
            back="associate",
        )
        yield from law(
            f"{f}-of-transpose{suffix}",
            op.applied("transpose(x, perm=p)", *rest),
            f"transpose({op.applied('x', *rest)}, perm=p)",
            [f"all(p[k] == k for k in range(a.{attribute}, len(p)))", *(w.format(x="x") for w in within)],
            phase="associate",
            back="associate",
        )
        yield from law(
            f"{f}-from-unit-axis{suffix}",
            op.applied("x", *rest),
            op.applied("x", *rest, fields={attribute: f"a.{attribute} + 1"}),
            [f"a.{attribute} + 1 < rank(x)", f"dim(x, a.{attribute}) == 1"],
            phase="associate",
        )
        for name in rest:
            yield from law(
                f"{f}-of-expanded-{name}{suffix}",
                op.applied("x", *(f"expand({v}, shape=s)" if v == name else v for v in rest)),
                op.applied("x", *rest),
                phase="associate",
            )
