"""Laws of an axis whose places are computed apart: concatenations, slices and groups, and siblings that merge.

An operator that slides a window over its operand is spread over a concatenation in "expand" too, as it is seldom worth
a concatenation of its operands; other ways back are in "associate".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eqsat.language.declaration.indices import Index, IndexTerm
from eqsat.rewrites.schemas.operator import ADDED, Operator, Statement, alike, axis, axis_of, law, loop
from eqsat.rewrites.schemas.reductions import reduced_laws
from eqsat.rewrites.schemas.rows import free_block


def parallel_laws(op: Operator) -> Iterator[Statement]:
    """Laws for each axis that is walked in step by some operands and the result."""
    block = {i.name for i in free_block(op)}
    yield from _transposition(op)
    for index in op.form.parallel():
        if len(op.form.holders(index.name)) == 1:
            yield from reduced_laws(op, index)
        if not op.is_ungrouped(index) or index.name in block:
            continue
        yield from _concatenation(op, index)
        if len(op.form.holders(index.name)) == 1:
            yield from _slices(op, index)
            if len(op.linear) > 1:
                yield from _merge(op, index)
    for group, counted in op.form.sizes.items():
        yield from _groups(op, group, counted)


def _transposition(op: Operator) -> Iterator[Statement]:
    """The axes that the first operand and the result alone have may change places."""
    first, result = op.form.operands[0], op.form.result
    if first.indices != result.indices or first.broadcasts or op.form.additions or first.turned:
        return
    free = [i.name for i in first.indices if not (i.mixed or i.window or i.group) and op.form.holders(i.name) == (0,)]
    fixed = [k for k, i in enumerate(first.indices) if i.name not in free]
    if len(free) < 2 or any(i.many for i in first.indices[:-1]):
        return
    still = [f"p[{k}] == {k}" for k in fixed]
    turned = op.with_operands({op.variables[0]: f"transpose({op.variables[0]}, perm=p)"})
    back = f"transpose({op.with_operands({})}, perm=p)"
    yield from law(f"{op.name}-of-transpose", turned, back, still, phase="associate", back="associate")


def _holders(op: Operator, index: Index) -> list[tuple[str, IndexTerm]]:
    """The variables of the operands that have an index, with their terms."""
    return [(op.variables[k], op.form.operands[k]) for k in op.form.holders(index.name)]


def _concatenation(op: Operator, index: Index) -> Iterator[Statement]:
    """A result joined along the index is that of operands joined along it."""
    holders = _holders(op, index)
    names = [v for v, _ in holders]
    firsts = {v: f"{v}s[0]" for v in names}
    place = axis(op.form.result, index.name, f"rank({op.called(firsts)})")
    bound = "rank" in place  # an axis counted from the right is bound, then compared
    joined = {v: f"concat(*{v}s, axis={axis_of(t, index.name, f'{v}s[0]')})" for v, t in holders}
    conditions = [op.group_guard(index), *op.ranks(firsts)]
    if len(names) > 1:
        (first, term), *others = holders
        conditions.append(" and ".join(f"len({first}s) == len({v}s)" for v, _ in others))
        sizes = " and ".join(
            f"dim({first}, {axis_of(term, index.name, first)}) == dim({v}, {axis_of(t, index.name, v)})"
            for v, t in others
        )
        conditions.append(f"all({sizes} {loop(names)})")
    conditions += [alike(v, f"{v}s", t, index.name) for v, t in holders]
    whole, parts = op.with_operands(joined), f"concat(*[{op.with_operands({})} {loop(names)}], axis={{}})"
    title, back = f"{op.name}-over-concat-along-{index.name}", "expand" if op.form.windowed else "associate"
    forward = [f"k == {place}", *conditions] if bound else conditions
    yield from law(f"concat-of-{op.name}-along-{index.name}", parts.format("k" if bound else place), whole, forward)
    if len(names) == 1:
        yield from law(title, whole, parts.format(place), conditions, phase=back)


def _slices(op: Operator, index: Index) -> Iterator[Statement]:
    """A slice of the result along the index is that of a slice of the one operand that has it; products, back too."""
    ((name, term),) = _holders(op, index)
    phase = "associate" if op.form.windowed or len(op.form.operands) == 1 else "expand"
    whole = op.with_operands({})
    here, there = axis_of(term, index.name, name), axis(op.form.result, index.name, f"rank({op.called({})})")
    guards = [op.group_guard(index), *op.ranks()]
    fixed = here.isdecimal() and there.isdecimal()
    before, after = (f"axes=({k},), starts=i, ends=j, steps=d" if fixed else "**s" for k in (there, here))
    yield from law(
        f"slice-of-{op.name}-along-{index.name}",
        f"slice({whole}, {before})",
        op.with_operands({name: f"slice({name}, {after if fixed else _moved(there, here)})"}),
        ["" if fixed else f"s.axes == ({there},)", *guards],
        phase=phase,
    )
    if len(op.linear) < 2 or op.form.windowed:
        return  # the slice has done its work
    yield from law(
        f"{op.name}-of-slice-along-{index.name}",
        op.with_operands({name: f"slice({name}, {after})"}),
        f"slice({whole}, {before if fixed else _moved(here, there)})",
        ["" if fixed else f"s.axes == ({here},)", *guards, f"not constant({name})"],
        phase=phase,
    )


def _moved(here: str, there: str) -> str:
    """The attributes of a slice along one axis, moved to another."""
    if here == there:
        return "**s"
    count = here.removesuffix(" - 1") if here.endswith(" - 1") else f"{here} + 1"
    return f"**axes_to(s, place_of({there}, {count}))"


def _merge(op: Operator, index: Index) -> Iterator[Statement]:
    """Siblings that share all other operands are parts of one result."""
    ((name, term),) = _holders(op, index)
    group = f"{name}s"
    there = axis(op.form.result, index.name, f"rank({op.called({name: f'{group}[0]'})})")
    joined = f"concat(*{group}, axis={axis_of(term, index.name, f'{group}[0]')})"
    sizes = f"sizes=[dim({name}, {axis_of(term, index.name, name)}) for {name} in {group}]"
    conditions = [op.group_guard(index), *op.ranks({name: f"{group}[0]"}), alike(name, group, term, index.name)]
    title = f"{op.name}s-merge-along-{index.name}"
    yield from law(
        title,
        f"[{op.with_operands({})} for {name} in {group}]",
        f"split({op.with_operands({name: joined})}, axis={there}, {sizes})",
        conditions,
        phase="merge",
    )
    for added in op.form.additions:
        yield from _merge_with_addition(op, index, added, title, (name, joined, there, sizes), conditions)


def _merge_with_addition(
    op: Operator, index: Index, added: IndexTerm, title: str, parts: Sequence[str], conditions: Sequence[str]
) -> Iterator[Statement]:
    name, joined, there, sizes = parts
    group, term = f"{name}s", op.form.operands[op.form.holders(index.name)[0]]
    exact = len(added.indices) == 1
    if added.position(index.name) == len(added.indices) - 1:  # the bias varies along the index, and is a vector
        count = f"dim({name}, {axis_of(term, index.name, name)})"
        vectors = "" if exact else f"all(shape(b) == ({count},) for {name}, b in zip({group}, bs))"
        yield from law(
            f"{title}-with-bias",
            f"[{op.with_operands({}, ADDED)} for {name}, b in zip({group}, bs)]",
            f"split({op.with_operands({name: joined}, 'concat(*bs, axis=0)')}, axis={there}, {sizes})",
            [vectors, *conditions],
            phase="merge",
        )
        return
    rank = len(op.form.result.indices)
    steady = "" if added.position(index.name) is None else f"off_axis(b, {there}, {rank})"
    yield from law(
        f"{title}-with-bias",
        f"[{op.with_operands({}, ADDED)} for {name} in {group}]",
        f"split({op.with_operands({name: joined}, ADDED)}, axis={there}, {sizes})",
        [steady, *conditions],
        phase="merge",
    )


def _groups(op: Operator, group: str, counted: str) -> Iterator[Statement]:
    """Results of equal groups side by side are one of all groups, where every operand has them and all are alike."""
    terms = [*zip(op.variables, op.form.operands, strict=True)]
    places = {v: next((i.name for i in t.indices if i.group == group), "") for v, t in terms}
    outer = next((i.name for i in op.form.result.indices if i.group == group), "")
    if not outer or not all(places.values()):
        return
    names = list(op.variables)
    joined = [f"concat(*{v}s, axis={axis_of(t, places[v], f'{v}s[0]')})" for v, t in terms]
    where = axis(op.form.result, outer, f"rank({names[0]}s[0])")
    yield from law(
        f"concat-of-{op.name}-groups",
        f"concat(*[{op.with_operands({})} {loop(names)}], axis={where})",
        op.applied(*joined, fields={counted: f"len({names[0]}s) * a.{counted}"}),
        [
            " and ".join(f"len({names[0]}s) == len({v}s)" for v in names[1:]),
            *(f"all(same_shape({v}, {v}s[0]) for {v} in {v}s)" for v in names),
        ],
    )
