"""Fuzzing of the optimiser: random graphs under random costs, compared with their originals.

`python -m benchmarks.faults --only graphs` tries thousands. A cost that is random for each operator makes every rule's
right side be chosen at times, not only the cheapest.
"""

from __future__ import annotations

import contextlib
import time
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import eqsat
from benchmarks.random_graphs import random_inputs
from eqsat.costs.model.asked import Application
from eqsat.errors import CertificateError, EqsatError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.interpret import run
from eqsat.language.terms import Graph, TensorType
from eqsat.report.result import Result
from eqsat.runtime.backend import execute

#: Sizes of named dims that results are run at.
SIZES = ({"n": 3, "m": 2}, {"n": 1, "m": 1}, {"n": 0, "m": 3}, {"n": 2, "m": 0})
#: What arithmetic of each width may differ by when its order changes, relative to the largest element.
ROUNDING = {"float64": 1e-7, "float32": 2e-3, "float16": 5e-2, "bfloat16": 0.3}
#: What they may differ by in float64, where only constants that were folded are rounded to their width.
EXACT = {"float64": 1e-8, "float32": 3e-5, "float16": 2e-2, "bfloat16": 0.15}


@dataclass(frozen=True)
class Settings:
    """How one graph is optimised: the seed of its random costs (None for the cost model's own), and the limits."""

    costs: int | None
    nodes: int = 1500
    seconds: float = 20.0

    @property
    def cost(self) -> Callable[[Application], float] | None:
        """The random costs."""
        return None if self.costs is None else _random_cost(self.costs)

    def result(self, graph: Graph) -> Result:
        """The optimised graph, with its report."""
        return eqsat.optimize(
            graph, measure=False, cost=self.cost, node_limit=self.nodes, time_limit=self.seconds, threads=1
        )


def _random_cost(seed: int) -> Callable[[Application], float]:
    """A cost that is random for each operator, and varies a little with its attributes and shapes."""

    def cost(applied: Application) -> float:
        kind = zlib.crc32(f"{seed} {applied.op}".encode()) % 1000
        form = zlib.crc32(f"{seed} {applied.op} {applied.attrs} {applied.operands}".encode()) % 1000
        return 1e-6 * (1 + kind + form / 4)

    return cost


def fault(graph: Graph, settings: Settings) -> str | None:
    """What is wrong with the optimised form of a graph, in words; None where it is right."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if not _runs(graph):
            return None
        try:
            result = settings.result(graph)
        except Exception as error:  # noqa: BLE001 - whatever is raised is the finding
            trace = "" if isinstance(error, CertificateError) else "\n" + traceback.format_exc(limit=-3)
            return f"{type(error).__name__}: {error}{trace}"
        return next(_faults(graph, result), None)


def _runs(graph: Graph) -> bool:
    """Whether a graph can be run at all: an index may lie outside, a window not fit."""
    for sizes in SIZES if _names(graph) else SIZES[:1]:
        with contextlib.suppress(Exception):
            execute(graph, random_inputs(graph, sizes, 1), "numpy")
            return True
    return False


def _faults(graph: Graph, result: Result) -> Iterator[str]:
    report = result.report
    if report.lower_bound > report.cost_after * (1 + 1e-9):
        yield f"the bound {report.lower_bound} exceeds the cost {report.cost_after}"
    if report.cost_after > report.cost_before * (1 + 1e-9):
        yield f"the cost grew from {report.cost_before} to {report.cost_after}"
    str(report), report.json(), str(result.explain())
    if tuple(result.graph.inputs) != tuple(graph.inputs) or list(result.graph.outputs) != list(graph.outputs):
        yield "inputs or outputs changed"
    for name, value in graph.outputs.items():
        if (old := graph.type(value)) != (new := result.graph.type(result.graph.outputs[name])):
            yield f"output {name}: type {old} became {new}"
    for sizes in SIZES if _names(graph) else SIZES[:1]:
        yield from _differences(graph, result.graph, sizes)
    yield from _exported(graph, result)


def _narrowest(graph: Graph) -> str:
    """The float type that rounds most of those in a graph."""
    types = {t.dtype.value for t in graph.types.values() if isinstance(t, TensorType)}
    return next((d for d in reversed(ROUNDING) if d in types), "float64")


def _names(graph: Graph) -> set[str]:
    dims = [d for v in graph.inputs if isinstance(t := graph.type(v), TensorType) for d in t.shape or ()]
    return {d for d in map(str, dims) if not d.isdigit()}


def _differences(graph: Graph, result: Graph, sizes: dict[str, int]) -> Iterator[str]:
    inputs = random_inputs(graph, sizes, 1)
    try:
        native, exact = execute(graph, inputs, "numpy"), run(graph, _wide(inputs), Floats(wide=True))
    except Exception:  # noqa: BLE001 - the original cannot be run at these sizes, so neither need the result
        return
    try:
        after, exact_after = execute(result, inputs, "numpy"), run(result, _wide(inputs), Floats(wide=True))
    except Exception as error:  # noqa: BLE001
        yield f"at {sizes} the result fails on NumPy: {type(error).__name__}: {error}"
        return
    narrow = _narrowest(graph)
    for name in graph.outputs:
        if words := difference(exact[name], exact_after[name], EXACT[narrow]):
            yield f"at {sizes}, {name} in float64: {words}"
        words = difference(native[name], after[name], ROUNDING[narrow])
        # Where rounding decided which of equal numbers is greatest, a result that has what float64 has errs less.
        if words and difference(exact[name].astype(native[name].dtype), after[name], ROUNDING[narrow]):
            yield f"at {sizes}, {name} on NumPy: {words}"


def _wide(inputs: dict[str, Any]) -> dict[str, Any]:
    return {k: v if v.dtype.kind in "iub" else v.astype(np.float64) for k, v in inputs.items()}


def difference(old: Any, new: Any, tolerance: float) -> str | None:
    """How two outputs differ, in words; None where they agree."""
    old, new = np.asarray(old), np.asarray(new)
    if (old.shape, old.dtype) != (new.shape, new.dtype):
        return f"{old.dtype}{old.shape} became {new.dtype}{new.shape}"
    if old.dtype.kind in "biu":
        return None if np.array_equal(old, new) else f"{old.ravel()[:5]} became {new.ravel()[:5]}"
    old, new = old.astype(np.float64), new.astype(np.float64)
    apart = ~((old == new) | (np.isnan(old) & np.isnan(new)))
    if not apart.any():
        return None
    scale = np.abs(old[np.isfinite(old)]).max(initial=0.0) if np.isfinite(old).any() else 0.0
    bound = tolerance * max(scale, 1.0)
    with np.errstate(invalid="ignore"):
        wrong = apart & ~(np.abs(old - new) <= bound)
    if not wrong.any():
        return None
    at = tuple(int(i[0]) for i in np.nonzero(wrong))
    return f"{old[at]} became {new[at]} at {at} of {old.shape}, {int(wrong.sum())} elements"


def _exported(graph: Graph, result: Result) -> Iterator[str]:
    """What is wrong with the result as ONNX, where the original can be written and run there."""
    import onnx

    from eqsat.language.onnx.write.exporter import to_model

    # ONNX Runtime defines neither what kernels make of infinite weights nor that they take empty tensors.
    static = [t for t in graph.types.values() if isinstance(t, TensorType) and t.is_static]
    if not all(c.is_finite for c in graph.constants.values()) or any(t.elements({}) == 0 for t in static):
        return
    from eqsat.language.onnx.read.importer import load

    sizes = SIZES[0]
    inputs = random_inputs(graph, sizes, 2)
    try:
        onnx.checker.check_model(to_model(graph), full_check=True)
        expected = _on_session(to_model(graph), inputs)
    except Exception:  # noqa: BLE001 - ONNX Runtime refuses the original, so there is nothing to compare with
        return
    try:
        model = result.to_onnx()
        onnx.checker.check_model(model, full_check=True)
        load(model)
    except Exception as error:  # noqa: BLE001
        yield f"the result is no ONNX model: {type(error).__name__}: {error}"
        return
    try:
        got = _on_session(model, inputs)
    except Exception as error:  # noqa: BLE001
        yield f"the result fails on ONNX Runtime: {type(error).__name__}: {error}"
        return
    reference, exact = execute(graph, inputs, "numpy"), run(graph, _wide(inputs), Floats(wide=True))
    for name, old in expected.items():
        tolerance = ROUNDING[_narrowest(graph)]
        words = difference(old, got[name], tolerance)
        # A kernel that differs from ONNX's definition is not the optimiser's fault, nor what rounding decides.
        fair = [reference[name], exact[name].astype(reference[name].dtype)]
        if words and all(difference(one, got[name], tolerance) for one in fair):
            yield f"{name} on ONNX Runtime: {words}"


def _on_session(model: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = {i.name for i in session.get_inputs()}
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(None, {k: v for k, v in inputs.items() if k in wanted}), strict=True))


def shrunk(graph: Graph, fails: Callable[[Graph], bool], seconds: float = 60.0) -> Graph:
    """A smaller graph that fails too: fewer outputs, values cut off as inputs, operators left out."""
    end = time.monotonic() + seconds
    found = True
    while found and time.monotonic() < end:
        found = False
        for smaller in _smaller(graph):
            if time.monotonic() > end:
                break
            if fails(smaller):
                graph, found = smaller, True
                break
    return graph


def _smaller(graph: Graph) -> Iterator[Graph]:
    if len(graph.outputs) > 1:
        for name in graph.outputs:
            yield _tidy(graph.restricted([name]))
    for node in graph.nodes:
        with contextlib.suppress(EqsatError):
            if node.outputs[0] not in graph.outputs.values() or len(graph.outputs) > 1:
                yield _tidy(replace(graph, outputs={"out0": node.outputs[0]}).without_dead())
    for node in reversed(graph.nodes):
        made = [o for o in node.outputs if o and o not in graph.outputs.values()]
        if made:
            rest = tuple(n for n in graph.nodes if n is not node)
            yield _tidy(replace(graph, inputs=(*graph.inputs, *made), nodes=rest).without_dead())
        for value in node.inputs:
            if value and len(node.outputs) == 1 and graph.type(value) == graph.type(node.outputs[0]):
                yield _tidy(_without(graph, node.outputs[0], value))


def _without(graph: Graph, value: str, instead: str) -> Graph:
    nodes = []
    for node in graph.nodes:
        if value not in node.outputs:
            inputs = tuple(instead if v == value else v for v in node.inputs)
            nodes.append(replace(node, inputs=inputs))
    outputs = {name: instead if v == value else v for name, v in graph.outputs.items()}
    return replace(graph, nodes=tuple(nodes), outputs=outputs).without_dead()


def _tidy(graph: Graph) -> Graph:
    """Without inputs that nothing reads."""
    read = {v for n in graph.nodes for v in n.inputs} | set(graph.outputs.values())
    inputs = tuple(v for v in graph.inputs if v in read)
    return replace(graph, inputs=inputs or graph.inputs[:1])


def described(graph: Graph) -> str:
    """A graph in a line for each input, constant and node."""
    lines = [f"  input {v}: {graph.type(v)}" for v in graph.inputs]
    lines += [f"  constant {v}: {c.type} {np.asarray(c.array).ravel()[:6]}" for v, c in graph.constants.items()]
    lines += [
        f"  {', '.join(n.outputs)} = {n.op}({', '.join(map(str, n.inputs))}; {n.attrs}): {graph.type(n.outputs[0])}"
        for n in graph.nodes
    ]
    return "\n".join([*lines, f"  outputs {dict(graph.outputs)}"])


def settings_of(seed: int) -> Settings:
    """Random costs for three seeds of four."""
    return Settings(costs=seed if seed % 4 else None)
