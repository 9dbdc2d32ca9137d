"""Lookup of e-classes by names of a model, tensors it was built of, forms, or numbers."""

from __future__ import annotations

from numbers import Integral
from typing import Any, TypeAlias

from eqsat.errors import UsageError
from eqsat.explorer.forms import Form, Forms
from eqsat.explorer.naming import near
from eqsat.explorer.session import Session
from eqsat.language.graphs.builder import Builder, Tensor
from eqsat.language.onnx.read.model import ModelArgument

#: What names a tensor: a value, an output or a node of the model, a tensor it was built of, a form, or an e-class.
Where: TypeAlias = str | int | Tensor | Form | Forms


class Locator:
    """Find e-nodes and e-classes by users' names."""

    def __init__(self, session: Session, model: ModelArgument) -> None:
        self.session, self.model = session, model
        self.egraph, self.graph = session.encoding.egraph, session.given.graph

    def eclass(self, x: Any) -> int:
        """The leader of the e-class that is meant; UsageError where there is none."""
        return self.egraph.find(self.enode(x))

    def enode(self, x: Any) -> int:
        """The e-node that is meant: a form's, a value's as the model computes it, the first of a class."""
        if isinstance(x, Form):
            return self._numbered(x.enode)
        if isinstance(x, Forms):
            return self._numbered(x.eclass)
        if isinstance(x, Tensor):
            if isinstance(self.model, Builder) and x.graph is not self.model:
                raise UsageError(
                    f"tensor {x.name!r} belongs to graph {x.graph.name!r}",
                    where=self.graph.name,
                    expected="a tensor of the graph that is explored",
                )
            return self._named(x.name)
        if isinstance(x, Integral) and not isinstance(x, bool):
            return self._numbered(int(x))
        if isinstance(x, str):
            return self._named(x)
        raise UsageError(
            f"{x!r} names no tensor",
            where=self.graph.name,
            expected="the name of a value, an output or a node, a tensor, a form, or the number of an e-class",
        )

    def _numbered(self, number: int) -> int:
        if 0 <= number < len(self.egraph.nodes):
            return number
        raise UsageError(
            f"no e-class {number}", where=self.graph.name, expected=f"a number from 0 to {len(self.egraph.nodes) - 1}"
        )

    def _named(self, name: str) -> int:
        values = self.session.encoding.values
        known = self.graph.outputs.get(name, name)
        if known in values:
            return values[known]
        choice = self.session.choice
        leaders = {} if choice is None else {v: leader for leader, v in choice.names(self.egraph).items()}
        nodes = {n.name: next(v for v in n.outputs if v) for n in self.graph.nodes if n.name}
        if name in leaders:
            return leaders[name]
        if name in nodes:
            return values[nodes[name]]
        if name.startswith("#") and name[1:].isdecimal():
            return self._numbered(int(name[1:]))
        close = near(name, [*values, *self.graph.outputs, *nodes, *leaders])
        raise UsageError(
            f"no value {name!r}",
            where=self.graph.name,
            expected="a value, an output or a node of the model as it was read, constants folded",
            remedy=f"did you mean {' or '.join(map(repr, close))}?" if close else "table() lists all values",
        )
