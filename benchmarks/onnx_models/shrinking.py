"""Models that fail, made as small as they still fail in the same way, and kept outside the repository."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, helper, printer

from benchmarks.faults.watch import Found
from benchmarks.onnx_models.drawing import random_model
from benchmarks.onnx_models.noise import inner_values, types_of
from benchmarks.onnx_models.trying import Feeds, Way, examined, seed_of, way_of

#: Where models are kept, unless EQSAT_FAULTS_KEPT names another folder.
KEPT = Path(tempfile.gettempdir()) / "eqsat-models"
_SECONDS, _ONE_SECONDS = 100.0, 30


@dataclass(frozen=True)
class Failing:
    """A model, its inputs at every size, and how it is optimised."""

    model: ModelProto
    feeds: Feeds
    way: Way


def kept(number: int, seed: int, _folder: Path) -> Found:
    """Makes the model of a number small and keeps it; to be run in a process that has not optimised anything yet."""
    drawn = random_model(seed_of(number, seed))
    feeds = [(dict(sizes), feed) for sizes, feed in drawn.feeds()]
    failing = Failing(drawn.model, feeds, way_of(drawn.seed, drawn.edges))
    verdict: Callable[[Failing], str | None] = verdict_apart
    words = verdict(failing)
    if words is None:
        return "gone", None
    if kind_of(words) not in ("crashed", "hung"):
        verdict = verdict_here
    small = shrunk(failing, verdict)
    folder = Path(os.environ.get("EQSAT_FAULTS_KEPT") or KEPT)
    folder.mkdir(parents=True, exist_ok=True)
    name = f"model_{drawn.seed}"
    text = f"{verdict(small)}\n{small.way}\n{_numbers(small)}{printer.to_text(small.model)}\n"
    onnx.save(small.model, folder / f"{name}.onnx")
    (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return f"kept as {folder / name}.onnx", text


def kind_of(words: str | None) -> str | None:
    """What of a fault stays as the model gets smaller: its words without names and numbers."""
    if words is None:
        return None
    head = words.splitlines()[0]
    return (
        head.split(":")[0].split(" at ")[0]
        if head.startswith(("wrong", "does not"))
        else re.sub(r"'.*?'|\d+", "", head)[:80]
    )


def verdict_here(failing: Failing) -> str | None:
    """What is wrong with a result, in words; None where it is right."""
    with (
        tempfile.TemporaryDirectory(prefix="eqsat-models-") as folder,
        np.errstate(all="ignore"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            return examined(failing.model, failing.feeds, failing.way, Path(folder))[1]
        except Exception as error:  # noqa: BLE001 - whatever is raised is the finding
            return f"{type(error).__name__}: {error}"


def verdict_apart(failing: Failing) -> str | None:
    """The same, found in a process of its own, which may crash or hang."""
    with tempfile.TemporaryFile() as words:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads: none is needed there
            child = os.fork()
        if child == 0:
            try:
                os.write(words.fileno(), (verdict_here(failing) or "").encode())
            finally:
                os._exit(0)
        end = time.monotonic() + _ONE_SECONDS
        while not (done := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return "hung: no end in time"
            time.sleep(0.01)
        if os.WIFSIGNALED(done[1]):
            return f"crashed: {signal.Signals(os.WTERMSIG(done[1])).name}"
        words.seek(0)
        return words.read().decode(errors="replace") or None


def shrunk(failing: Failing, verdict: Callable[[Failing], str | None], seconds: float = _SECONDS) -> Failing:
    """The smallest that was found in some seconds and fails in the same way."""
    kind, end, found = kind_of(verdict(failing)), time.monotonic() + seconds, True
    while found and time.monotonic() < end:
        found = False
        for smaller in _smaller(failing):
            if time.monotonic() > end:
                break
            if kind_of(verdict(smaller)) == kind:
                failing, found = smaller, True
                break
    return failing


def _smaller(failing: Failing) -> Iterator[Failing]:
    """One step smaller: a plainer way, fewer sizes, fewer outputs, values cut off as outputs or as inputs."""
    way, model = failing.way, failing.model
    if len(failing.feeds) > 1:
        for one in failing.feeds:
            yield replace(failing, feeds=[one])
    if len(model.graph.output) > 1:
        for output in model.graph.output:
            yield _tidy(failing, [output.name])
    for plainer in (replace(way, command=False), replace(way, costs=None), replace(way, opset=None)):
        if plainer != way:
            yield replace(failing, way=plainer)
    kinds = types_of(model)
    with contextlib.suppress(Exception):
        yield from _cut_before(failing, kinds)
    for node in model.graph.node:
        for name in node.output:
            if name in kinds and name not in {o.name for o in model.graph.output}:
                yield _tidy(failing, [name], kinds)
    for i in range(len(model.graph.value_info)):
        made = _copy(model)
        del made.graph.value_info[i]
        yield replace(failing, model=made)


def _cut_before(failing: Failing, kinds: dict[str, int]) -> Iterator[Failing]:
    """Nodes left out, latest first, with what they make given as inputs."""
    model = failing.model
    feeds = []
    for sizes, feed in failing.feeds:
        with contextlib.suppress(Exception):
            feeds.append((sizes, dict(feed) | inner_values(model, feed)))
    if not feeds:
        return
    for i in reversed(range(len(model.graph.node))):
        node = model.graph.node[i]
        if any(o and (o not in feeds[0][1]) for o in node.output) or node.op_type == "Constant":
            continue
        if failing.way.finite_math is None and not all(_is_finite(f[o]) for _, f in feeds for o in node.output if o):
            continue  # an input is taken for finite, and what a node makes is not
        made = _copy(model)
        del made.graph.node[i]
        for name in node.output:
            if name:
                made.graph.input.append(_info(name, kinds[name], [f[name] for _, f in feeds]))
        yield _tidy(replace(failing, model=made, feeds=feeds), None)


def _is_finite(value: Any) -> bool:
    return value.dtype.kind != "f" or bool(np.isfinite(value).all())


def _info(name: str, kind: int, arrays: Sequence[Any]) -> Any:
    """An input with the dims that it has at every size, and names for the others."""
    ranks = {a.ndim for a in arrays}
    if len(ranks) > 1:
        return helper.make_tensor_value_info(name, kind, None)
    sizes = [{a.shape[i] for a in arrays} for i in range(ranks.pop())]
    return helper.make_tensor_value_info(
        name, kind, [next(iter(s)) if len(s) == 1 else f"{name}_{i}" for i, s in enumerate(sizes)]
    )


def _tidy(failing: Failing, outputs: Sequence[str] | None, kinds: dict[str, int] | None = None) -> Failing:
    """With some outputs alone, and nothing that they do not need."""
    made = _copy(failing.model)
    graph = made.graph
    if outputs is not None:
        known = {o.name: o for o in graph.output}
        chosen = [known[n] if n in known else helper.make_tensor_value_info(n, (kinds or {})[n], None) for n in outputs]
        chosen = [_copied(c) for c in chosen]
        del graph.output[:]
        graph.output.extend(chosen)
    needed = {o.name for o in graph.output}
    nodes = []
    for node in reversed(graph.node):
        if needed & set(node.output):
            nodes.append(_copied(node))
            needed |= set(_reads(node))
    del graph.node[:]
    graph.node.extend(reversed(nodes))
    made_here = {o for n in graph.node for o in n.output}
    named: Sequence[tuple[str, Callable[[Any], str]]] = (
        ("initializer", lambda t: t.name),
        ("input", lambda v: v.name),
        ("sparse_initializer", lambda s: s.values.name),
        ("value_info", lambda v: v.name),
    )
    for field, name_of in named:
        kept_here = [_copied(t) for t in getattr(graph, field) if name_of(t) in needed]
        if field == "input":
            kept_here = [v for v in kept_here if v.name not in made_here]
        graph.ClearField(field)
        getattr(graph, field).extend(kept_here)
    called = {n.op_type for n in graph.node if n.domain == "local"}
    if not called:
        made.ClearField("functions")
    return replace(failing, model=made)


def _reads(node: Any) -> Iterator[str]:
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _reads(inner)
        yield from (o.name for o in attribute.g.output)


def _copy(model: ModelProto) -> ModelProto:
    made = ModelProto()
    made.CopyFrom(model)
    return made


def _copied(message: Any) -> Any:
    made = type(message)()
    made.CopyFrom(message)
    return made


def _numbers(failing: Failing) -> str:
    """The inputs at each size, as far as they fit a line."""
    names = {v.name for v in failing.model.graph.input}
    with np.printoptions(threshold=40, precision=9):
        return "".join(
            f"{sizes}: {name} = {feed[name].dtype}{feed[name].shape} {feed[name].ravel()}\n"
            for sizes, feed in failing.feeds
            for name in feed
            if name in names
        )
