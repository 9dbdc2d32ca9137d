"""The share of a model's time that its opaque nodes take, by ONNX Runtime's profiler; prints a line of JSON.

`python -m benchmarks.coverage.times MODEL` runs in a process of its own, which a model that ends one cannot leave.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import onnx
import onnxruntime as ort
from onnx import GraphProto, NodeProto

from eqsat.commands.opaque import listing
from eqsat.errors import BackendError, EqsatError
from eqsat.language.graphs.fold import fresh_beside
from eqsat.language.onnx.control.sites import sites
from eqsat.language.onnx.files.protos import subgraphs
from eqsat.language.onnx.read import bodies as functions
from eqsat.language.onnx.read.model import Given, read
from eqsat.language.sizes.solve import sizing_of
from eqsat.language.terms import OPAQUE, Graph, Sym
from eqsat.runtime.onnxruntime.session import SessionProgram
from eqsat.steps.sizes import points_for

#: Runs that are profiled, and seconds after which no further one begins; the first is thrown away.
_RUNS, _SECONDS = 30, 8.0
_FILE_BYTES = 1 << 30
#: How the profiler calls the time of a kernel.
_KERNEL = "_kernel_time"
#: What reading a branch in the place of its `If` adds to names.
_NUMBERED = re.compile(r"/\d+$")
_LEVELS = {
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    "none": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
}


@dataclass(frozen=True)
class _Place:
    """A node of the model by the name it is given for the profiler: its operator, and the opaque one it belongs to.

    `bodies` says that the graphs it holds are read by themselves: what is opaque about it is its own time alone.
    """

    operator: str
    opaque: str | None
    inner: bool
    bodies: bool


def coverage(path: Path) -> dict[str, Any]:
    """What of a model is opaque, by nodes and by time; `unprofiled` says why there is no time."""
    try:
        given = read(path)
    except EqsatError as error:
        return {"imported": False, "error": str(error)}
    found: dict[str, Any] = {"imported": True, **listing(given.graph).document()}
    try:
        shares, at = _shares(path, given)
    except (BackendError, RuntimeError) as error:
        return {**found, "unprofiled": str(error).splitlines()[0]}
    for entry in found["operators"]:
        entry["time"] = round(shares.get(_named(entry["domain"], entry["operator"]), 0.0), 5)
    return {**found, "opaque_time": round(sum(shares.values()), 5), "profiled_at": at}


def _named(domain: str, operator: str) -> str:
    return operator if domain in ("", "ai.onnx") else f"{domain}.{operator}"


def _shares(path: Path, given: Given) -> tuple[dict[str, float], str]:
    """The share of time of each opaque operator, and the sizes it was measured at.

    Once as ONNX Runtime runs the model, where fused nodes have lost their names, and once with nothing fused, where
    each node is itself and others are slower than they need be; of these the one is taken where opaque nodes take more.
    """
    model = functions.inlined(onnx.load(path), path.name)
    values = _Values()
    values.collect(given.graph, fresh_beside(given.graph.types.values()))
    places = dict(_renamed(model.graph, values))
    with tempfile.TemporaryDirectory(prefix="eqsat-coverage-") as folder:
        renamed = Path(folder) / "model.onnx"
        onnx.save(model, renamed, save_as_external_data=model.ByteSize() > _FILE_BYTES, location="model.data")
        del model
        found = []
        for level in _LEVELS:
            events, at = _profiled(renamed, given, level, Path(folder))
            found.append((_attributed(events, places), at))
    return max(found, key=lambda one: sum(one[0].values()))


class _Values:
    """The values that opaque nodes make, by their names in the model, each with the operator that makes it.

    What is read in the place of an `If` makes the values of that too, and is another operator. `bodies` are those of
    nodes whose bodies are read by themselves; what is opaque in these is among the rest.
    """

    def __init__(self) -> None:
        self.opaque: set[tuple[str, str]] = set()
        self.bodies: set[tuple[str, str]] = set()

    def collect(self, graph: Graph, fresh: Callable[[], Sym]) -> None:
        """Adds the opaque nodes of a graph and of the bodies in it that are read."""
        read = {id(site.node): site.control.bodies for site in sites(graph, fresh)}
        for node in graph.nodes:
            if node.op != OPAQUE:
                continue
            proto = NodeProto.FromString(node.attrs["proto"])
            operator = _named(proto.domain, proto.op_type)
            made = {(known, operator) for value in proto.output for known in (value, _NUMBERED.sub("", value))}
            self.opaque |= made
            if id(node) in read:
                self.bodies |= made
            for body in read.get(id(node), ()):
                self.collect(body.graph, fresh)


def _renamed(
    graph: GraphProto, values: _Values, prefix: str = "n", within: str | None = None
) -> Iterator[tuple[str, _Place]]:
    """Gives every node a name that no other has, those within others too, and yields what it is."""
    for index, node in enumerate(graph.node):
        node.name = f"{prefix}{index}"
        operator = _named(node.domain, node.op_type)
        made = {(value, operator) for value in node.output}
        own = within or (operator if made & values.opaque else None)
        bodies = within is None and bool(made & values.bodies)
        yield node.name, _Place(node.op_type, own, prefix != "n", bodies)
        for number, inner in enumerate(subgraphs(node)):
            yield from _renamed(inner, values, f"{node.name}g{number}n", None if bodies else own)


def _profiled(path: Path, given: Given, level: str, folder: Path) -> tuple[dict[str, float], str]:
    """The seconds of a run that each node takes, by its name, and the sizes of named dims."""
    options = ort.SessionOptions()
    options.graph_optimization_level = _LEVELS[level]
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / level)
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (point,), _ = points_for(given, {})
    run = SessionProgram(given.graph, session).bind(point.inputs(given.graph, 0))
    start, runs = time.monotonic(), 0
    while runs < 2 or (runs < _RUNS and time.monotonic() - start < _SECONDS):
        run()
        runs += 1
    times: dict[str, list[float]] = {}
    for event in json.loads(Path(session.end_profiling()).read_text()):
        if event.get("cat") == "Node" and event["name"].endswith(_KERNEL):
            times.setdefault(event["name"].removesuffix(_KERNEL), []).append(event["dur"])
    seconds = {name: _of_a_run(taken, runs) for name, taken in times.items()}
    return seconds, sizing_of(given.graph).describe(point.sizes)


def _of_a_run(taken: Sequence[float], runs: int) -> float:
    """The time of a node in one run: the median of all but the first, each with as many times as a loop has turns."""
    turns, rest = divmod(len(taken), runs)
    if rest:
        return sum(taken) / runs
    return median(sum(taken[i * turns : (i + 1) * turns]) for i in range(1, runs))


def _attributed(seconds: Mapping[str, float], places: Mapping[str, _Place]) -> dict[str, float]:
    """The share of each opaque operator in the time of all nodes that are in no other.

    Of a node whose bodies are read by themselves it is the time that the nodes of these do not take.
    """
    inside: dict[str, float] = {}
    for name, taken in seconds.items():
        if name in places and places[name].inner:
            inside[_outer(name)] = inside.get(_outer(name), 0.0) + taken
    total = 0.0
    opaque: dict[str, float] = {}
    for name, taken in seconds.items():
        place = places.get(name)
        if place is None or not place.inner:
            total += taken
        if place is not None and place.opaque is not None and not _is_counted(name, places):
            own = max(taken - inside.get(name, 0.0), 0.0) if place.bodies else taken
            opaque[place.opaque] = opaque.get(place.opaque, 0.0) + own
    return {name: taken / total for name, taken in opaque.items()} if total else {}


def _outer(name: str) -> str:
    """The name of the node that holds one."""
    return re.sub(r"g\d+n\d+$", "", name)


def _is_counted(name: str, places: Mapping[str, _Place]) -> bool:
    """Whether a node is within one that is opaque, whose time has its own in it."""
    outer = places[_outer(name)]
    return outer is not places[name] and outer.opaque is not None and not outer.bodies


if __name__ == "__main__":
    print(json.dumps(coverage(Path(sys.argv[1]))))
