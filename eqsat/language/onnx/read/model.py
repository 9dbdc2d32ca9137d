"""The model that is optimised: as it was given, and as the graph read from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from eqsat.errors import GraphError, UsageError
from eqsat.language.comprehension.calls import DOMAIN as COMPREHENSIONS
from eqsat.language.onnx.files.origin import OnnxOrigin
from eqsat.language.onnx.read.digest import ModelDigest
from eqsat.language.terms import Graph, Sym, TensorType

if TYPE_CHECKING:
    from onnx import ModelProto

    from eqsat.language.graphs.builder import Builder
    from eqsat.language.graphs.repeats import Condensed
    from eqsat.language.onnx.files.reader import StoredModel

#: The models that `optimize` takes.
ModelArgument: TypeAlias = "str | Path | ModelProto | Graph | Builder"


@dataclass(frozen=True)
class Inside:
    """A body of a node of `graph` that was optimised by itself, with the figures of that.

    `place` says where it stands. Costs are those of one run of it, in units of the objective, `runs` how often it is
    taken to run. `failure` says why it was left as it was, where something failed.
    """

    place: str
    nodes: tuple[int, int]
    costs: tuple[float, float] = (0.0, 0.0)
    runs: float = 1.0
    rules: tuple[str, ...] = ()
    certificate: Any = None
    failure: str = ""

    @property
    def saved(self) -> float:
        """The cost that all runs together save."""
        return (self.costs[0] - self.costs[1]) * self.runs


@dataclass(frozen=True)
class Given:
    """A model as it was given and the graph read from it, typed and folded.

    `source` is the path or the ModelProto, None for what was built in Python, for a model with calls of comprehensions
    of PyTorch's, which only eqsat runs, and where only some outputs are wanted;
    `nodes` counts the model's nodes before folding, those that only hold a constant left out. Where bodies of nodes
    were optimised already, `before` is the graph as it was before that, and `inside` says what was done. A graph that
    is a body itself is `heard`: the graph around it may tell the sign of its zeros; `doubted` inputs are not taken for
    finite. `digest` is that of the whole model, None for a body. `stored` has the bytes of a large ModelProto. Where
    equal blocks of a model stand for each other, `condensed` is the graph that is grown and chosen from in its place.
    """

    source: Any
    graph: Graph
    nodes: int
    before: Graph | None = None
    inside: tuple[Inside, ...] = ()
    doubted: frozenset[str] = frozenset()
    heard: bool = False
    digest: ModelDigest | None = None
    stored: StoredModel | None = None
    condensed: Condensed | None = None

    @property
    def grown(self) -> Graph:
        """The graph that is written into an e-graph: each of equal blocks a few times only."""
        return self.graph if self.condensed is None else self.condensed.graph

    @property
    def runnable(self) -> Any:
        """The model to be run as it was given: its path, or itself with its bytes; None where there is no source."""
        return self.source if self.source is None or self.stored is None else self.stored

    @property
    def original(self) -> Graph:
        """The graph as it was read."""
        return self.graph if self.before is None else self.before

    @property
    def title(self) -> str:
        """The name of the model for users: that of its file, else of its graph."""
        return self.source.name if isinstance(self.source, Path) else self.graph.name

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings that the reader of the model has for a user."""
        return self.graph.origin.warnings if isinstance(self.graph.origin, OnnxOrigin) else ()


def read(model: ModelArgument, outputs: Sequence[str] | None = None) -> Given:
    """Read a model, or the part of it that makes some outputs; ImportModelError where it cannot be read."""
    from eqsat.language.graphs.builder import Builder

    source: Any = None
    stored: StoredModel | None = None
    if isinstance(model, Builder):
        model = model.build()
    if isinstance(model, Graph):
        from eqsat.language.graphs.fold import infer_and_fold

        graph, nodes = infer_and_fold(model), len(model.nodes)
        digest = ModelDigest(model)
    else:
        from eqsat.language.onnx.files.reader import read as parsed_from
        from eqsat.language.onnx.read.importer import load_source

        # The folder a program works in may change before the result is written.
        source = Path(model).absolute() if isinstance(model, str | Path) else model
        parsed = parsed_from(model)
        stored = parsed.stored
        graph = load_source(parsed)
        origin = graph.origin if isinstance(graph.origin, OnnxOrigin) else None
        nodes = origin.nodes if origin is not None else len(graph.nodes)
        digest = ModelDigest(stored or source, origin.files if origin is not None else ())
        if any(one.domain == COMPREHENSIONS for one in parsed.model.opset_import):
            source = stored = None  # no runtime has these operators: the graph, which is written without, stands for it
    if not graph.outputs:
        raise GraphError("it has no outputs", where=graph.name, expected="a graph that computes something")
    if outputs is None:
        return Given(source, graph, nodes, digest=digest, stored=stored)
    if isinstance(outputs, str) or not outputs:
        raise UsageError(f"outputs = {outputs!r}", where=graph.name, expected="a list of one name or more")
    restricted = graph.restricted(outputs)
    whole = list(restricted.outputs) == list(graph.outputs)
    return Given(source if whole else None, restricted, nodes, digest=digest, stored=stored)


def model_digest(given: Given) -> str:
    """The SHA-256 of a model as it was given, whichever outputs of it are wanted; of a body, that of its graph."""
    return (given.digest or ModelDigest(given.graph)).sha256


def dims_of(graph: Graph) -> list[str]:
    """The named dims of a graph, sorted; those that nobody named are left out."""
    types = (t for t in graph.types.values() if isinstance(t, TensorType) and t.shape is not None)
    dims = {d for t in types for d in t.shape or () if isinstance(d, Sym)}
    return sorted({name for d in dims for name in d.names() if not name.startswith("?")})
