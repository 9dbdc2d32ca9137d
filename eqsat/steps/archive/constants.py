"""Constants of a kept result: the model's own by their hashes, large derived ones by how they are computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from eqsat.egraph.derived import fold_derived
from eqsat.language.onnx.files.origin import OnnxOrigin
from eqsat.language.terms import Constant, DType, Graph, TensorType
from eqsat.report.finalists import Candidate
from eqsat.steps.archive.codec import Place

#: Constants that are derived, and smaller, are kept by their elements.
DERIVED_BYTES = 4096
GIVEN, DERIVED, KEPT = "given", "derived", "kept"


class LostConstantError(Exception):
    """A constant that cannot be had again."""


def constants_of(graph: Graph) -> Iterator[Constant]:
    """The constants of a graph, those of its origin among them."""
    yield from graph.constants.values()
    if isinstance(graph.origin, OnnxOrigin):
        yield from graph.origin.defaults.values()
        yield from (constant for constant, _ in graph.origin.sparse.values())
        for record in graph.origin.records:
            yield from record.constants.values()


@dataclass
class Keeping:
    """Places for the constants of a result: `derived` are names of those that a graph computes, `kept` are elements."""

    given: frozenset[bytes]
    derived: Mapping[bytes, str]
    kept: list[tuple[TensorType, bytes]] = field(default_factory=list)
    numbers: dict[bytes, int] = field(default_factory=dict)

    def place(self, constant: Constant) -> Place:
        """The place of a constant."""
        digest = constant.digest
        if digest in self.given:
            return GIVEN, digest
        if digest in self.derived:
            return DERIVED, (self.derived[digest], digest)
        if digest not in self.numbers:
            if constant.type.dtype is DType.STRING:
                raise LostConstantError("a constant of strings that the model does not have")
            self.numbers[digest] = len(self.kept)
            self.kept.append((constant.type, np.ascontiguousarray(constant.array).tobytes()))
        return KEPT, self.numbers[digest]


@dataclass(frozen=True)
class Finding:
    """Constants by their places: those of the model as it was read now, computed ones, and those kept."""

    given: Mapping[bytes, Constant]
    derived: Mapping[str, Constant]
    kept: tuple[Constant, ...]

    def constant(self, place: Place) -> Constant:
        """The constant at a place; LostConstantError where it is not there, or is another than was kept."""
        kind, key = place
        if kind == KEPT:
            return self.kept[key]
        name, digest = key if kind == DERIVED else ("", key)
        constant = self.given.get(digest) if kind == GIVEN else self.derived.get(name)
        if constant is None or constant.digest != digest:
            raise LostConstantError(f"a constant is {kind} no more")
        return constant


def recipes(candidate: Candidate) -> Graph | None:
    """The graph that computes the large derived constants of a finalist from the model's; None where it has none."""
    assembled = candidate.assembled
    if assembled is None:
        return None
    graph = assembled.decoded.graph
    made = {v for node in graph.nodes for v in node.outputs}
    names = [v for v, c in assembled.graph.constants.items() if v in made and c.nbytes >= DERIVED_BYTES]
    return replace(graph, outputs={v: v for v in names}, origin=None).without_dead() if names else None


def derived(recipe: Graph | None, candidate: Candidate) -> Mapping[bytes, str]:
    """The names of the constants that a graph computes for a finalist, by the hashes that they have there."""
    if recipe is None or candidate.assembled is None:
        return {}
    constants = candidate.assembled.graph.constants
    return {constants[name].digest: name for name in recipe.outputs}


def computed(recipe: Graph | None) -> Mapping[str, Constant]:
    """The constants that a graph computes, as they were computed when the result was assembled."""
    if recipe is None:
        return {}
    constants = fold_derived(recipe).constants
    return {name: constants[value] for name, value in recipe.outputs.items() if value in constants}


def restored(type: TensorType, elements: bytes) -> Constant:
    """A constant from its type and elements."""
    array = np.frombuffer(elements, type.dtype.numpy).reshape(type.static)
    return Constant.of(array, type.dtype)
