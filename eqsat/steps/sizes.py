"""Sizes that a model is costed and measured at: those that are asked for, and those it accepts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace

from eqsat.errors import BackendError, EqsatError
from eqsat.language.onnx.read.model import Given
from eqsat.language.sizes.solve import sizing_of
from eqsat.language.terms.graph import Graph
from eqsat.options.sizes import Sizes
from eqsat.runtime.backend import BACKENDS, Program
from eqsat.runtime.examples import SizePoint, tried
from eqsat.runtime.onnxruntime.child import child_of, may_end_the_process
from eqsat.steps.log import Log
from eqsat.steps.settings import Settings
from eqsat.system.deadline import TimeUp

#: The share of a call that finding sizes the model runs at may take.
_SHARE = 0.2


def placed(given: Given, sizes: Sizes, settings: Settings, log: Log) -> Settings:
    """The settings at sizes that the model accepts."""
    run = settings.device.is_here and not settings.device.gpu
    try:
        with settings.deadline.part(_SHARE):
            points, warnings = points_for(given, sizes, settings.options.threads, run=run)
    except TimeUp as late:
        points, warnings = points_for(given, sizes, run=False)
        if run and sizing_of(given.graph).unread is not None:  # else its operators have told all there is to know
            log.skipped.append(f"the model was not run to find sizes that it accepts: {late}")
    log.warnings += warnings
    settings.costs.settle(given.graph, points)
    return replace(settings, points=points)


def points_for(given: Given, sizes: Sizes, threads: int = 1, *, run: bool = True) -> tuple[list[SizePoint], list[str]]:
    """Size points at which a model is costed and measured, and warnings for the user.

    Sizes that the model does not accept give way to the nearest that it does. Where its operators do not tell, it is
    run on ONNX Runtime, if `run` allows it.
    """
    graph = given.graph
    sizing = sizing_of(graph)
    program = _program(given, threads) if run and sizing.unread is not None else None
    if program is not None and may_end_the_process(graph):
        with child_of(graph, given.runnable) as program:
            return _points(graph, sizes, program)
    return _points(graph, sizes, program)


def _points(graph: Graph, sizes: Sizes, program: Program | None) -> tuple[list[SizePoint], list[str]]:
    points: dict[tuple[tuple[str, int], ...], SizePoint] = {}
    warnings: list[str] = []
    for combination in itertools.product(*(s.items() for s in sizes.values())):
        wanted = {name: size for name, (size, _) in zip(sizes, combination, strict=True)}
        weight = math.prod(share for _, (_, share) in zip(sizes, combination, strict=True))
        point, warning = _point(graph, wanted, weight, program)
        key = tuple(sorted(point.sizes.items()))
        known = points.get(key)
        points[key] = point if known is None else replace(known, weight=known.weight + weight)
        warnings += [warning] if warning else []
    return list(points.values()), warnings


def _point(
    graph: Graph, wanted: Mapping[str, int], weight: float, program: Program | None
) -> tuple[SizePoint, str | None]:
    sizing = sizing_of(graph)
    accepted = sizing.near(wanted)
    point = SizePoint(sizing.completed(wanted) if accepted is None else accepted, weight, wanted=wanted)
    refused = None if accepted is not None else "no sizes are known that all operators accept"
    if program is not None:
        try:
            point = tried(program, graph, point)
            refused = None
        except BackendError as error:
            refused = error.what
    at = sizing.describe(point.sizes)
    if refused is not None:
        return point, f"costed at {at}, at which the model may not run: {refused}"
    asked = sizing.named(wanted)
    moved = {name: size for name, size in asked.items() if point.sizes.get(name, size) != size}
    if moved:
        return point, f"the model does not accept {sizing.describe(moved)}; the nearest that it does is {at}"
    return point, None


def _program(given: Given, threads: int) -> Program | None:
    """The model as ONNX Runtime runs it; None where that is not installed, or does not take the model at all."""
    if BACKENDS["onnxruntime"].available() is not None:
        return None
    from eqsat.runtime.onnxruntime.session import SessionProgram

    try:
        if given.source is None:
            return BACKENDS["onnxruntime"].compile(given.graph, threads=threads)
        return SessionProgram.of_given(given.graph, given.runnable, threads=threads, nodes=given.nodes)
    except EqsatError:
        return None
