"""Operand shapes drawn from an index form, for operators that are declared without a sample rule."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from eqsat.errors import GraphError, ShapeError
from eqsat.language.declaration.indices import Index, IndexForm, IndexTerm
from eqsat.language.declaration.spec import REQUIRED, Sample, SampleRule
from eqsat.language.terms import Shape, broadcast_shapes


def form_sample(
    form: IndexForm, attributes: Mapping[str, Any], instances: Sequence[Mapping[str, Any]] = ()
) -> SampleRule:
    """A sample rule: dims of 1 to 3 for the indices, in agreement with the operands that are known.

    Attributes that count groups or name axes are drawn, others come from one of the `instances`; GraphError for one
    that has no default and is neither.
    """

    def sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
        if len(known) > len(form.terms):
            return None
        plain = [i for i in instances if not any(callable(v) for v in i.values())]
        full = {**(rng.choice(plain) if plain else {}), **attrs}
        for counted in form.sizes.values():
            full.setdefault(counted, rng.choice((1, 1, 2)))
        try:
            shapes = _Draw(form, attributes, rng, full).shapes(known)
        except ShapeError:
            return None
        _demand(attributes, full)
        return shapes, full

    return sample


def _demand(attributes: Mapping[str, Any], full: Mapping[str, Any]) -> None:
    for name, default in attributes.items():
        if default is REQUIRED and name not in full:
            raise GraphError(
                f"nothing says which values to try for attribute {name!r}",
                expected="a default, instances, or a sample rule that draws it",
                remedy=f"declare the operator with instances=({{{name!r}: …}},)",
            )


class _Draw:
    """One choice of sizes."""

    def __init__(
        self, form: IndexForm, attributes: Mapping[str, Any], rng: random.Random, attrs: dict[str, Any]
    ) -> None:
        self.form, self.attributes, self.rng, self.attrs = form, attributes, rng, attrs
        self.sizes: dict[str, Any] = {}
        self.runs: dict[str, Shape] = {}
        self.leading: Shape | None = None
        self.length: int | None = None

    def shapes(self, known: Sequence[Shape | None]) -> list[Shape]:
        """The shapes of all operands, those known as they are; ShapeError where they do not agree with the form."""
        terms = self.form.terms[: len(known)]
        for term, shape in zip(terms, known, strict=True):
            if shape is not None and term.indices:
                self.read(term, self.turned(term, shape))
        shapes: list[Shape] = []
        for term, shape in zip(terms, known, strict=True):
            shapes.append(shape if shape is not None else self.turned(term, self.made(term, shapes)))
            if term.attribute and term.attribute not in self.attrs:
                self.attrs[term.attribute] = self.axes(term, shapes[-1])
        return shapes

    def turned(self, term: IndexTerm, shape: Shape) -> Shape:
        if term.turned:
            default = self.attributes.get(term.turned, False)
            turned = self.attrs.setdefault(term.turned, self.rng.random() < 0.3 if default is False else default)
            return shape[::-1] if turned else shape
        return shape

    def read(self, term: IndexTerm, shape: Shape) -> None:
        """Take over the sizes of a known operand."""
        spare = len(shape) - term.fixed
        if spare < 0 or (spare and not term.open):
            raise ShapeError("the rank does not fit the index form")
        place = 0
        for index in term.indices:
            count = spare if index.many else 1
            dims = shape[place : place + count]
            place += count
            if index.name == "...":
                self.leading = dims if self.leading is None else broadcast_shapes(self.leading, dims)
            elif index.many:
                self.settle_run(index, dims)
            elif index.name != "1":
                self.settle(index, dims[0])

    def settle(self, index: Index, size: Any) -> None:
        groups = self.groups(index)
        if isinstance(size, int) and size % groups:
            raise ShapeError("the groups do not divide the axis")
        part = size // groups if isinstance(size, int) else size
        if self.sizes.setdefault(_key(index), part) != part:
            raise ShapeError(f"index {index.name} has two sizes")

    def settle_run(self, index: Index, dims: Shape) -> None:
        if self.length not in (None, len(dims)) or self.runs.setdefault(_key(index), dims) != dims:
            raise ShapeError(f"index {index.name} has two sizes")
        self.length = len(dims)

    def groups(self, index: Index) -> int:
        counted = self.form.sizes.get(index.group)
        return int(self.attrs[counted]) if counted else 1

    def made(self, term: IndexTerm, before: Sequence[Shape]) -> Shape:
        """The shape of an operand that is free."""
        if not term.indices and term.attribute:  # parameters of the axes named, as the first operand has them
            first = self.attrs[term.attribute] % max(len(before[0]), 1) if before else 0
            return before[0][first:] if before else ()
        shape: list[Any] = []
        for index in term.indices:
            if index.name == "...":
                shape += self.lead(self.least(term))
            elif index.many:
                shape += self.run(index)
            else:
                size = 1 if index.name == "1" else self.sizes.setdefault(_key(index), self.size(index))
                shape.append(size * self.groups(index))
        if term.added and len(shape) > 1:  # an addend broadcasts
            shape = shape[self.rng.randint(0, len(shape) - 1) :]
        return tuple(shape)

    def least(self, term: IndexTerm) -> int:
        """The least rank that has the axes which an attribute names."""
        named = self.attrs.get(term.attribute, 0) if term.attribute else -1
        axes = [named] if isinstance(named, int) else [0, *named]
        return max(a + 1 if a >= 0 or not term.attribute else -a for a in axes)

    def lead(self, least: int) -> Shape:
        """Leading axes; where no attribute names any, now and then fewer or of one element, which broadcast."""
        if self.leading is None:
            self.leading = tuple(self.rng.randint(1, 3) for _ in range(self.rng.randint(least, max(least, 3))))
        if least or self.rng.random() < 0.6:
            return self.leading
        trailing = self.leading[self.rng.randint(0, len(self.leading)) :]
        return tuple(1 if self.rng.random() < 0.3 else d for d in trailing)

    def run(self, index: Index) -> Shape:
        if self.length is None:
            self.length = self.rng.randint(1, 2)
        dims = tuple(self.size(index) for _ in range(self.length))
        return self.runs.setdefault(_key(index), dims)

    def size(self, index: Index) -> int:
        """A dim of 1 to 3; an axis that windows slide over is no smaller than a window, whose offsets are 1 or 2."""
        if index.window:
            return self.rng.randint(2, 4)
        offsets = {i.window for t in self.form.terms for i in t.indices} - {""}
        return self.rng.randint(1, 2 if index.name in offsets else 3)

    def axes(self, term: IndexTerm, shape: Shape) -> Any:
        """One axis or some, as the attribute has it."""
        if not shape:
            raise ShapeError("no axis to name")
        one = self.rng.randrange(len(shape))
        several = not isinstance(self.attributes.get(term.attribute), int) and term.attribute != "axis"
        if not several or term.tail:
            return one
        return tuple(sorted(self.rng.sample(range(len(shape)), self.rng.randint(1, min(2, len(shape))))))


def _key(index: Index) -> str:
    """The key for the size of an index: an axis that a window slides over has another size than the result."""
    return f"{index.name}@" if index.window else index.name
