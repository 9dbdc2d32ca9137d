"""XLA as a peer, through JAX."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.bench.case import BenchCase
from eqsat.bench.contender import Loaded
from eqsat.bench.jax_words import jax_words
from eqsat.bench.words import result_shapes
from eqsat.errors import BackendError
from eqsat.language.terms.graph import Graph


class JaxPeer:
    """The model as one function under jax.jit, its weights as arguments."""

    name, ours = "XLA (JAX)", False

    def missing(self, case: BenchCase) -> str | None:
        """Why JAX cannot take part."""
        if importlib.util.find_spec("jax") is None:
            return "jax is not installed"
        # It would take most of the GPU's memory for itself otherwise.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        jax: Any = importlib.import_module("jax")
        try:
            jax.devices("gpu" if case.on_gpu else "cpu")
        except RuntimeError:
            return "jax sees no GPU"
        return None

    def load(self, case: BenchCase) -> Loaded:
        """The function compiled for the case's shapes, on its device."""
        jax: Any = importlib.import_module("jax")
        jax.config.update("jax_enable_x64", True)
        place = jax.devices("gpu" if case.on_gpu else "cpu")[0]
        function = _function(jax, case.graph)
        precision = "tensorfloat32" if case.tf32 else "highest" if case.precision == "float32" else "default"
        with jax.default_matmul_precision(precision):
            weights = [jax.device_put(c.array, place) for c in case.graph.constants.values()]
            timed = self._moved(jax, case, place, case.inputs(0))
            compiled = jax.jit(function).lower(timed, weights).compile()

        def call() -> object:
            return jax.block_until_ready(compiled(timed, weights))

        def outputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
            results = compiled(self._moved(jax, case, place, inputs), weights)
            return {name: np.array(one) for name, one in zip(case.graph.outputs, results, strict=True)}

        return Loaded(call, outputs, jax.clear_caches)

    def _moved(self, jax: Any, case: BenchCase, place: Any, inputs: Mapping[str, Any]) -> list[Any]:
        return [jax.device_put(inputs[name], place) for name in case.graph.inputs]


def _function(jax: Any, graph: Graph) -> Callable[[Sequence[Any], Sequence[Any]], tuple[Any, ...]]:
    """The graph as a function of its inputs and its constants."""
    words = jax_words(jax)
    lacking = next((node.op for node in graph.nodes if node.op not in words), None)
    if lacking is not None:
        raise BackendError(f"JAX has no word here for {lacking}", where=graph.name)

    def run(inputs: Sequence[Any], weights: Sequence[Any]) -> tuple[Any, ...]:
        values: dict[str, Any] = dict(zip(graph.inputs, inputs, strict=True))
        values |= zip(graph.constants, weights, strict=True)
        for node in graph.nodes:
            operands = [None if v is None else values[v] for v in node.inputs]
            results = words[node.op](node.attrs, result_shapes(graph, node), *operands)
            values |= zip(node.outputs, results if isinstance(results, tuple) else (results,), strict=True)
        return tuple(values[value] for value in graph.outputs.values())

    return run
