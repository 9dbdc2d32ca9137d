"""Sizes that a caller asks for by the names of dims."""

from __future__ import annotations

from collections.abc import Iterable

from eqsat.errors import UsageError
from eqsat.language.onnx.read.model import dims_of
from eqsat.language.sizes.solve import sizing_of
from eqsat.language.terms.graph import Graph


def check_sizes(graph: Graph, names: Iterable[str]) -> None:
    """UsageError for a named dim that the graph does not have; one that inputs leave unnamed is called as x[2]."""
    known = sorted({*dims_of(graph), *sizing_of(graph).labels.values()})
    for name in names:
        if name not in known:
            raise UsageError(
                f"no named dim {name!r}",
                where=graph.name,
                expected="one of " + ", ".join(known) if known else "none: every dim of the model is a number",
                remedy="give sizes for dims the model has; `eqsat inspect` lists them",
            )
