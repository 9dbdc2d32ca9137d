"""Sets and relations of isl from indices of computations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.nests.computation import KernelBuffer, Subscript
from eqsat.runtime.kernels.nests.extents import fixed
from eqsat.runtime.kernels.polyhedral.library import isl


def index_text(index: AffineIndex, names: Mapping[str, str]) -> str:
    """A sum of indices as isl writes it; `names` gives the dimension of each index.

    KeyError for an index that has none.

    >>> index_text(AffineIndex.variable("i", 12) * 2 + 1, {"i": "x0"})
    '2*x0 + 1'
    """
    parts = []
    for variable, factor in index.terms:
        if variable.of is None:
            text = names[variable.name]
        else:
            inner = index_text(variable.of, names)
            text = f"floor(({inner})/{variable.by})" if variable.kind == "/" else f"(({inner}) mod {variable.by})"
        parts.append(f"{factor}*{text}" if factor != 1 else text)
    if index.constant or not parts:
        parts.append(str(index.constant))
    return " + ".join(parts)


def box(dims: Sequence[str], extents: Sequence[int]) -> str:
    """The condition that dimensions lie from 0 to below their extents."""
    return " and ".join(f"0 <= {dim} < {extent}" for dim, extent in zip(dims, extents, strict=True)) or "true"


def tuple_text(name: str, items: Iterable[str]) -> str:
    """A named tuple."""
    return f"{name}[{', '.join(items)}]"


def element_map(
    domain: isl.Set,
    at: str,
    subscripts: Sequence[Subscript],
    names: Mapping[str, str],
    buffer: KernelBuffer,
    space: str,
) -> isl.Map:
    """The relation between points and the elements that subscripts give; a computed subscript may be any.

    Elements outside of the buffer are left out: a run that reaches one fails.
    """
    dims = [f"e{number}" for number in range(len(subscripts))]
    conditions = [box(dims, tuple(map(fixed, buffer.shape)))]
    for dim, subscript in zip(dims, subscripts, strict=True):
        if isinstance(subscript, AffineIndex):
            conditions.append(f"{dim} = {index_text(subscript, names)}")
    text = f"{{ {at} -> {tuple_text(space, dims)} : {' and '.join(conditions)} }}"
    return isl.Map(text).intersect_domain(domain)


def joined_maps(maps: Sequence[isl.Map]) -> isl.Map | None:
    """The union of relations of one kind; None of none."""
    return reduce(lambda a, b: a.union(b), maps) if maps else None


def union_of(maps: Iterable[isl.Map]) -> isl.UnionMap:
    """The union of relations of any kinds."""
    total = isl.UnionMap("{ }")
    for one in maps:
        total = total.union(isl.UnionMap.from_map(one))
    return total


def part(relation: isl.UnionMap, domain: isl.Set, range_: isl.Set) -> isl.Map:
    """The part of a union of relations between two kinds of points."""
    space = domain.get_space().map_from_domain_and_range(range_.get_space())
    return relation.extract_map(space)


def point_values(point: isl.Set) -> list[int]:
    """The coordinates of one point of a set that is not empty."""
    sample = point.sample_point()
    return [
        sample.get_coordinate_val(isl.dim_type.set, number).to_python() for number in range(point.dim(isl.dim_type.set))
    ]


def only(values: Sequence[int], like: isl.Set) -> isl.Set:
    """The set of one point."""
    made = isl.Set.universe(like.get_space())
    for number, value in enumerate(values):
        made = made.fix_val(isl.dim_type.set, number, isl.Val(value))
    return made
