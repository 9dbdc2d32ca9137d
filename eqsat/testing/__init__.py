"""Strategies and checks for tests of graphs, operators and rewrite rules, on Hypothesis.

`tensor_types`, `tensors`, `attributes`, `graphs`, `feeds`, `rules` and `instances` are Hypothesis strategies.
`check_rewrite` looks for an instance that refutes a rule, and shrinks it. `eqsat.testing.cuda` needs no Hypothesis.

>>> from hypothesis import given
>>> from eqsat.testing import graphs
>>> @given(graphs(ops=["matmul", "add", "relu"], max_nodes=3))
... def test_outputs_are_typed(graph):
...     assert all(graph.type(value).dtype.is_float for value in graph.outputs.values())
>>> test_outputs_are_typed()
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from eqsat.errors import MissingExtraError

if TYPE_CHECKING:
    from eqsat.testing.checks.counterexample import Counterexample, CounterexampleError
    from eqsat.testing.checks.rewrites import RewriteReport, check_rewrite
    from eqsat.testing.strategies.graphs import feeds, graphs
    from eqsat.testing.strategies.instances import instances, rules
    from eqsat.testing.strategies.tensors import attributes, tensor_types, tensors

__all__ = [
    "Counterexample",
    "CounterexampleError",
    "RewriteReport",
    "attributes",
    "check_rewrite",
    "feeds",
    "graphs",
    "instances",
    "rules",
    "tensor_types",
    "tensors",
]

_HOMES = {
    "Counterexample": "checks.counterexample",
    "CounterexampleError": "checks.counterexample",
    "RewriteReport": "checks.rewrites",
    "attributes": "strategies.tensors",
    "check_rewrite": "checks.rewrites",
    "feeds": "strategies.graphs",
    "graphs": "strategies.graphs",
    "instances": "strategies.instances",
    "rules": "strategies.instances",
    "tensor_types": "strategies.tensors",
    "tensors": "strategies.tensors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'eqsat.testing' has no attribute {name!r}")
    if find_spec("hypothesis") is None:
        raise MissingExtraError(
            "eqsat.testing needs hypothesis", expected="the extra [testing]", remedy="pip install 'eqsat[testing]'"
        )
    return getattr(import_module(f"eqsat.testing.{_HOMES[name]}"), name)
