"""Sets and relations of isl from indices of computations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.nests.computation import Computation, KernelBuffer, KernelStatement, Subscript
from eqsat.runtime.kernels.nests.extents import Extent, sum_of
from eqsat.runtime.kernels.polyhedral.faults import UndecidedScheduleError
from eqsat.runtime.kernels.polyhedral.library import isl


@dataclass(frozen=True, eq=False)
class SizeParameters:
    """Sizes that calls give as parameters of sets and relations.

    `names` are the parameters by the names of sizes in C, which may be words of isl, and `context` the values that they
    have: those of calls that are computed by what is compiled for free sizes. Then no extent is less than 1, and no
    statement writes beyond its target.
    """

    names: Mapping[str, str]
    context: isl.Set

    @staticmethod
    def of(computation: Computation) -> SizeParameters:
        """The parameters of a computation."""
        names = {name: f"n{number}" for number, name in enumerate(computation.sizes)}
        made = SizeParameters(names, isl.Set(f"{_declared(names)}{{ : }}"))
        shapes = [one.shape for one in computation.buffers.values()]
        shapes += [tuple(axis.extent for axis in one.axes) for one in computation.statements]
        free = dict.fromkeys(extent for shape in shapes for extent in shape if isinstance(extent, AffineIndex))
        least = [*names.values(), *(index_text(extent, names) for extent in free)]
        context = made.set(f"{{ : {' and '.join(f'{one} >= 1' for one in least)} }}")
        for one in computation.statements if names else ():
            context = context.subtract(made.set(_beyond(one, computation, made)).params())
        return SizeParameters(names, context)

    def set(self, text: str) -> isl.Set:
        """A set from its text."""
        return isl.Set(f"{_declared(self.names)}{text}").intersect_params(self.context)

    def map(self, text: str) -> isl.Map:
        """A relation from its text."""
        return isl.Map(f"{_declared(self.names)}{text}").intersect_params(self.context)

    def some(self, found: isl.Set) -> tuple[isl.Set, str]:
        """Values of sizes at which a set is not empty, as a set of parameters, and as messages end in them."""
        at, texts = self.context, []
        sample = found.sample_point()
        for number, (name, parameter) in enumerate(self.names.items()):
            place = sample.get_space().find_dim_by_name(isl.dim_type.param, parameter)
            value = sample.get_coordinate_val(isl.dim_type.param, place) if place >= 0 else isl.Val(1)
            at = at.fix_val(isl.dim_type.param, number, value)
            texts.append(f"{name} = {value.to_python()}")
        return at, f", with {', '.join(texts)}" if texts else ""


def _declared(names: Mapping[str, str]) -> str:
    return f"[{', '.join(names.values())}] -> "


def _beyond(statement: KernelStatement, computation: Computation, parameters: SizeParameters) -> str:
    """The instances of a statement that write beyond its target, as a set."""
    dims = {axis.name: f"x{number}" for number, axis in enumerate(statement.axes)}
    outside = []
    for index, extent in zip(statement.place, computation.buffers[statement.target].shape, strict=True):
        if not isinstance(index, AffineIndex):
            raise UndecidedScheduleError(f"elements decide which ones of {statement.target} are written")
        place = index_text(index, {**parameters.names, **dims})
        outside += [f"{place} < 0", f"{place} >= {index_text(sum_of(extent), parameters.names)}"]
    inside = box([*dims.values()], [axis.extent for axis in statement.axes], parameters)
    return f"{{ {tuple_text('', dims.values())} : {inside} and ({' or '.join(outside) or 'false'}) }}"


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


def box(dims: Sequence[str], extents: Sequence[Extent], parameters: SizeParameters) -> str:
    """The condition that dimensions lie from 0 to below their extents."""
    texts = [str(one) if isinstance(one, int) else index_text(one, parameters.names) for one in extents]
    return " and ".join(f"0 <= {dim} < {extent}" for dim, extent in zip(dims, texts, strict=True)) or "true"


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
    parameters: SizeParameters,
) -> isl.Map:
    """The relation between points and the elements that subscripts give; a computed subscript may be any.

    Elements outside of the buffer are left out: a run that reaches one fails.
    """
    dims = [f"e{number}" for number in range(len(subscripts))]
    conditions = [box(dims, buffer.shape, parameters)]
    for dim, subscript in zip(dims, subscripts, strict=True):
        if isinstance(subscript, AffineIndex):
            conditions.append(f"{dim} = {index_text(subscript, {**parameters.names, **names})}")
    text = f"{{ {at} -> {tuple_text(space, dims)} : {' and '.join(conditions)} }}"
    return parameters.map(text).intersect_domain(domain)


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
