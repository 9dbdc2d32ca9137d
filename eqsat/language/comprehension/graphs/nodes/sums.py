"""Products, convolutions and pools as functions: sums and extremes over some axes, as their index forms say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from eqsat.language.comprehension.graphs.nodes.stated import StatedNode, function_of_text, one_float
from eqsat.language.comprehension.meaning.element_types import NAME_OF
from eqsat.language.declaration.indices import Index, IndexForm, IndexTerm
from eqsat.language.declaration.registry import OPS
from eqsat.language.declaration.spec import OpSpec
from eqsat.language.parametric.facts import Fact
from eqsat.language.terms import Attrs, Dim, DType, Node, TensorType
from eqsat.language.terms.dims import Sym

#: The activations that an operator may end with, by the value of its attribute.
_ENDINGS = {"none": "{}", "relu": "max({}, 0)"}


def form_sum(node: Node, operands: Sequence[TensorType], result: TensorType) -> StatedNode | None:
    """A node of one type of floats as the sum, or the largest, of what its index form says; None where it says less.

    That is a product of two operands, to which others may be added, or windows of one.

    >>> a, b = TensorType.of("float32", (2, 4, 6)), TensorType.of("float32", (6, 5))
    >>> node = Node("matmul", ("a", "b"), ("c",), {})
    >>> print(form_sum(node, [a, b], TensorType.of("float32", (2, 4, 5))).function)
    def matmul(float(N_b0, N_m, N_k) x0, float(N_k, N_n) x1) -> (y) {
      y(b0, m, n) +=! x0(b0, m, k) * x1(k, n) where b0 in 0:N_b0, k in 0:N_k, m in 0:N_m, n in 0:N_n
    }
    """
    spec = OPS[node.op]
    dtype, form = one_float([*operands, result]), spec.form
    if dtype is None or form is None or not (spec.product or spec.windowed) or not result.rank:
        return None
    try:
        return _FormReader(spec, form, spec.complete(node.attrs), operands, result, dtype).stated()
    except UnstatedFormError:
        return None


class UnstatedFormError(Exception):
    """Leaves a form that is no sum of products and no window."""


@dataclass
class _FormReader:
    """The reading of one node by its form: indices by name, sizes by the name of their index."""

    spec: OpSpec
    form: IndexForm
    attrs: Attrs
    operands: Sequence[TensorType]
    result: TensorType
    dtype: DType
    sizes: dict[str, Dim] = field(default_factory=dict)
    conditions: list[Fact] = field(default_factory=list)
    #: The ranges of indices that do not follow, and the statements before the last.
    ranges: dict[str, str] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)

    def stated(self) -> StatedNode:
        form = self.form
        self.check_attributes()
        factors = [*zip(form.operands, self.operands, strict=False)]
        addends = [*zip(form.additions, self.operands[len(factors) :], strict=False)]
        if len(factors) < len(form.operands) or len(factors) + len(addends) < len(self.operands):
            raise UnstatedFormError
        terms = [self.spelled(term, one.rank) for term, one in factors]
        target = self.spelled(form.result, self.result.rank)
        self.note_sizes(target, terms)
        parameters, reads = [], []
        for number, (term, (_, operand)) in enumerate(zip(terms, factors, strict=True)):
            extents, places = self.read(number, term, terms, operand, target)
            parameters.append(f"{NAME_OF[self.dtype]}({', '.join(extents)}) x{number}")
            reads.append(self.padded(number, term, extents, places))
        value, assignment = self.value(reads, terms)
        made = [self.index_name(one) for one in target]
        where = ", ".join(f"{index} in 0:{high}" for index, high in sorted(self.ranges.items()))
        ending = _ENDINGS[self.attrs.get("activation", "none")]
        is_last = not addends and ending == "{}"
        text = f"{'y' if is_last else 's'}({', '.join(made)}) {assignment} {value} where {where}"
        if not is_last:
            whole = f"s({', '.join(made)})"
            for number, (addend, operand) in enumerate(addends, len(factors)):
                extents, places = self.addend(self.spelled(addend, operand.rank, least=True), operand, target)
                given = f"({', '.join(extents)})" if extents else ""
                parameters.append(f"{NAME_OF[self.dtype]}{given} x{number}")
                whole += f" + x{number}" + (f"({', '.join(places)})" if places else "")
            text += f"  y({', '.join(made)}) = {ending.format(whole)}"
        body = "  ".join([*self.before, text])
        function = function_of_text(f"def {self.spec.name}({', '.join(parameters)}) -> (y) {{ {body} }}")
        return StatedNode(function, None, tuple(self.conditions))

    def check_attributes(self) -> None:
        """Refuse attributes that the form says nothing of, but for their defaults."""
        form = self.form
        said = {"strides", "dilations", "pads", "activation"} if self.spec.windowed else set()
        said |= {*form.sizes.values()} | {one.turned for one in form.terms}
        said |= {index.window for one in form.terms for index in one.indices}
        for name, value in self.attrs.items():
            if name not in said and value != self.spec.attrs[name]:
                raise UnstatedFormError
        if self.attrs.get("activation", "none") not in _ENDINGS:
            raise UnstatedFormError

    def spelled(self, term: IndexTerm, rank: int, least: bool = False) -> list[Index]:
        """The axes of a term with a name for each: those of a run are numbered, those that broadcast from the last."""
        if any(one.mixed or one.name == "1" for one in term.indices) or term.attribute:
            raise UnstatedFormError
        spare = rank - term.fixed
        if spare < 0 and least:  # an addend may lack leading axes
            return list(term.indices)[-rank:] if rank else []
        if spare < 0 or (spare and not term.open):
            raise UnstatedFormError
        found: list[Index] = []
        for one in term.indices:
            if not one.many:
                found.append(one)
            elif one.name == "...":
                found += [Index(f"b{spare - 1 - place}") for place in range(spare)]
            else:
                found += [
                    Index(f"{one.name}{place}", one.group, f"{one.window}{place}" if one.window else "")
                    for place in range(spare)
                ]
        return found[::-1] if term.turned and self.attrs[term.turned] else found

    def note_sizes(self, target: Sequence[Index], terms: Sequence[Sequence[Index]]) -> None:
        """Take in the sizes of plain axes, one for each index; broadcast ones by the result."""
        held = dict(zip(target, self.result.dims, strict=True))
        for term, operand in zip(terms, self.operands, strict=False):
            for index, dim in zip(term, operand.dims, strict=True):
                name = self.index_name(index)
                broadcasts = index.name.startswith("b") and dim == 1 and held.get(index) != 1
                if index.window or broadcasts or (self.groups(index) > 1 and index not in held):
                    continue
                if self.sizes.setdefault(name, dim) != dim:
                    raise UnstatedFormError
        for index in target:
            if not any(self.index_name(index) == self.index_name(one) for term in terms for one in term):
                raise UnstatedFormError  # of one that is put together by itself, the order is not said

    def index_name(self, index: Index) -> str:
        return f"{index.group}{index.name}" if self.groups(index) > 1 else index.name

    def groups(self, index: Index) -> int:
        """The groups that an axis is made of, 1 where it is of none."""
        counted = self.attrs[self.form.sizes[index.group]] if index.group in self.form.sizes else 1
        if not isinstance(counted, int) or counted < 1:
            raise UnstatedFormError
        return counted

    def read(
        self,
        number: int,
        term: Sequence[Index],
        terms: Sequence[Sequence[Index]],
        operand: TensorType,
        target: Sequence[Index],
    ) -> tuple[list[str], list[str]]:
        """The extents of an operand, and the places at which it is read."""
        extents, places = [], []
        for axis, (index, dim) in enumerate(zip(term, operand.dims, strict=True)):
            name, own = self.index_name(index), f"E{number}_{axis}"
            if index.window:
                extents.append(own)
                places.append(self.window(index, term, terms))
            elif name.startswith("b") and dim == 1 and self.sizes.get(name, 1) != 1:
                extents.append("1")
                places.append("0")
            elif self.groups(index) > 1 and index not in target:
                extents.append(own)
                places.append(self.group(index, own, target))
            else:
                self.ranges[name] = f"N_{name}"
                extents.append(f"N_{name}")
                places.append(name)
        return extents, places

    def group(self, index: Index, own: str, target: Sequence[Index]) -> str:
        """The place along an axis of groups that the result walks too, by their number and an index within them."""
        outer = next((one for one in target if one.group == index.group), None)
        inner = self.sizes.get(index.name)
        if outer is None or inner is None:
            raise UnstatedFormError
        count, walked = self.groups(index), self.index_name(outer)
        whole, part = Sym.named(f"N_{walked}"), Sym.named(f"N_{index.name}")
        self.conditions.append(Fact.equal(Sym.function("mod", whole, count), 0))
        self.conditions.append(Fact.equal(Sym.named(own), count * part))
        return f"{walked} / (N_{walked} / {count}) * N_{index.name} + {index.name}"

    def window(self, index: Index, term: Sequence[Index], terms: Sequence[Sequence[Index]]) -> str:
        """The place along an axis that windows slide over."""
        along = [one.name for one in term if one.window]
        place, spatial = along.index(index.name), len(along)
        stride = (self.attrs["strides"] or (1,) * spatial)[place]
        dilation = (self.attrs["dilations"] or (1,) * spatial)[place]
        if not any(one.name == index.window for other in terms for one in other):
            name = index.window.removesuffix(str(place))  # an attribute that says how long a window is
            length = self.attrs.get(name, ())
            if len(length) != spatial:
                raise UnstatedFormError
            self.ranges[index.window] = str(length[place])
        return f"{_times(index.name, stride)} + {_times(index.window, dilation)}"

    def padded(self, number: int, term: Sequence[Index], extents: Sequence[str], places: Sequence[str]) -> str:
        """The element of an operand that is read, of one with borders of 0 where there are pads."""
        axes = [axis for axis, one in enumerate(term) if one.window]
        pads = self.attrs.get("pads") or ()
        if not axes or not any(pads):
            return f"x{number}({', '.join(places)})"
        if len(pads) != 2 * len(axes) or not self.spec.product or any(pad < 0 for pad in pads):
            raise UnstatedFormError
        begins, ends = dict(zip(axes, pads, strict=False)), dict(zip(axes, pads[len(axes) :], strict=True))
        indices = [f"p{axis}" for axis in range(len(term))]
        read = [f"{one} - {begins[a]}" if begins.get(a) else one for a, one in enumerate(indices)]
        inside = [f"p{axis} >= {begins[axis]}" for axis in axes if begins[axis]]
        inside += [f"p{axis} < {_plus(extents[axis], begins[axis])}" for axis in axes if ends[axis]]
        ranges = [
            f"{one} in 0:{_plus(extents[axis], begins.get(axis, 0) + ends.get(axis, 0))}"
            for axis, one in enumerate(indices)
        ]
        self.before.append(
            f"p({', '.join(indices)}) = {' && '.join(inside)} ? x{number}({', '.join(read)}) : 0.0"
            f" where {', '.join(ranges)}"
        )
        return f"p({', '.join(places)})"

    def value(self, reads: Sequence[str], terms: Sequence[Sequence[Index]]) -> tuple[str, str]:
        """The expression that is put together, and the sign that says by which operation."""
        if self.spec.product and len(reads) == 2:
            return f"{reads[0]} * {reads[1]}", "+=!"
        if len(reads) != 1 or self.spec.product:
            raise UnstatedFormError
        if self.spec.selects:
            return reads[0], "max=!"
        if not self.spec.accumulates:
            raise UnstatedFormError
        return f"{reads[0]} / ({' * '.join(self.lengths(terms[0]))})", "+=!"

    def lengths(self, term: Sequence[Index]) -> Iterator[str]:
        """The lengths of windows."""
        return (self.ranges[one.window] for one in term if one.window)

    def addend(
        self, term: Sequence[Index], operand: TensorType, target: Sequence[Index]
    ) -> tuple[list[str], list[str]]:
        """The extents of what is added, and the places at which it is read."""
        extents, places = [], []
        sizes: Mapping[str, Dim] = dict(zip(map(self.index_name, target), self.result.dims, strict=True))
        for index, dim in zip(term, operand.dims, strict=True):
            name = self.index_name(index)
            if dim == 1 and sizes.get(name) != 1:
                extents.append("1")
                places.append("0")
                continue
            if sizes.get(name) != dim:
                raise UnstatedFormError
            extents.append(f"N_{name}")
            places.append(name)
        return extents, places


def _times(name: str, factor: int) -> str:
    return name if factor == 1 else f"{factor} * {name}"


def _plus(name: str, number: int) -> str:
    return f"{name} + {number}" if number else name
