"""Random graphs optimised and compared with their originals; what fails is made small and kept as a regression."""

from __future__ import annotations

import json
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.faults.watch import Found
from benchmarks.fuzz import Settings, described, fault, settings_of, shrunk
from benchmarks.random_graphs import random_graph
from eqsat.errors import EqsatError
from eqsat.language.terms.graph import Graph

#: Where graphs that failed are kept, one small file each, and how each was found.
REGRESSIONS = Path(__file__).parents[2] / "tests" / "regressions"
LIST = "graphs.jsonl"
#: E-nodes of one optimisation: rules of every phase have fired by then.
NODES = 200
_SHRINKING_SECONDS, _ONE_SECONDS = 90.0, 30


def graph_of(number: int, seed: int) -> tuple[Graph, Settings]:
    """The graph of a number, and how it is optimised."""
    return random_graph(seed + number), replace(settings_of(seed + number), nodes=NODES)


def attempt(number: int, seed: int, _folder: Path) -> Found:
    """One graph, optimised and compared."""
    graph, settings = graph_of(number, seed)
    words = fault(graph, settings)
    return ("right", None) if words is None else ("wrong", f"{words}\n{described(graph)}")


@dataclass(frozen=True)
class Regression:
    """A graph that failed once: its file, the seed it was drawn from, its settings, and what was wrong."""

    file: str
    seed: int
    settings: dict[str, Any]
    fault: str

    def replayed(self, folder: Path) -> str | None:
        """What is wrong with it now."""
        from eqsat.language.onnx.read.importer import load

        return fault(load(folder / self.file), Settings(**self.settings))


def regressions(folder: Path = REGRESSIONS) -> Iterator[Regression]:
    """Every graph that failed once."""
    path = folder / LIST
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            yield Regression(**json.loads(line))


def keep(number: int, seed: int, folder: Path) -> Found:
    """Makes the graph of a number as small as it still fails, and keeps it; to be run in a process of its own."""
    graph, settings = graph_of(number, seed)
    return keep_graph(graph, settings, seed + number, folder, lambda g: verdict_apart(g, settings))


def kept(number: int, seed: int, _folder: Path) -> Found:
    """Keeps the graph of a number among the regressions."""
    return keep(number, seed, REGRESSIONS)


def keep_graph(
    graph: Graph, settings: Settings, seed: int, folder: Path, verdict: Callable[[Graph], str | None]
) -> Found:
    """Makes a graph as small as its verdict stays of one kind, and keeps it with what is needed to try it again."""
    from eqsat.language.onnx.write.exporter import save

    words = verdict(graph)
    if words is None:
        return "gone", None
    kind = kind_of(words)
    small = shrunk(graph, lambda g: kind_of(verdict(g)) == kind, _SHRINKING_SECONDS)
    name = f"graph_{seed}.onnx"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        save(small, folder / name)
    except EqsatError as error:
        return "not kept", f"{error}\n{described(small)}"
    found = Regression(name, seed, asdict(settings), str(verdict(small)).splitlines()[0])
    with (folder / LIST).open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(asdict(found)) + "\n")
    return "kept", described(small)


def kind_of(words: str | None) -> str | None:
    """What of a fault stays as the graph gets smaller."""
    return None if words is None else words.split(":")[0].split(" 0")[0]


def verdict_apart(graph: Graph, settings: Settings) -> str | None:
    """The fault of a graph, found in a process of its own, which may crash or hang."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads: none of them is needed there
        child = os.fork()
    if child == 0:
        try:
            os.write(writing, (fault(graph, settings) or "").encode()[:4096])
        finally:
            os._exit(0)
    os.close(writing)
    words = _read(reading, time.monotonic() + _ONE_SECONDS)
    if words is None:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if words is None:
        return f"hung: no end within {_ONE_SECONDS} s"
    if os.WIFSIGNALED(status):
        return f"crashed: {signal.Signals(os.WTERMSIG(status)).name}"
    return words or None


def _read(reading: int, deadline: float) -> str | None:
    """All that comes through a pipe; None where it is not closed in time."""
    os.set_blocking(reading, False)
    heard = b""
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while time.monotonic() < deadline:
            part = pipe.read(4096)
            if part == b"":
                return heard.decode(errors="replace")
            heard += part or b""
            time.sleep(0.002)
    return None
