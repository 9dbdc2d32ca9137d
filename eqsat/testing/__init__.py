"""Strategies and checks for tests of graphs, operators and rewrite rules, on Hypothesis.

`tensor_types`, `tensors`, `attributes`, `graphs`, `feeds`, `rules` and `instances` are Hypothesis strategies.
`check_rewrite` looks for an instance that refutes a rule, and shrinks it.

>>> from hypothesis import given
>>> @given(graphs(ops=["matmul", "add", "relu"], max_nodes=3))
... def test_outputs_are_typed(graph):
...     assert all(graph.type(value).dtype.is_float for value in graph.outputs.values())
>>> test_outputs_are_typed()
"""

from __future__ import annotations

from importlib.util import find_spec

from eqsat.errors import MissingExtraError

if find_spec("hypothesis") is None:
    raise MissingExtraError(
        "eqsat.testing needs hypothesis", expected="the extra [testing]", remedy="pip install eqsat[testing]"
    )

from eqsat.testing.counterexample import Counterexample, CounterexampleError
from eqsat.testing.graphs import feeds, graphs
from eqsat.testing.instances import instances, rules
from eqsat.testing.rewrites import RewriteReport, check_rewrite
from eqsat.testing.tensors import attributes, tensor_types, tensors

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
