"""Outputs of a result compared with the original's where both run: on ordinary inputs and on ones of other scales."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from eqsat.certify.centres import centres
from eqsat.certify.compare import relative_difference
from eqsat.errors import EqsatError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.interpret import run
from eqsat.language.onnx.files.origin import defaults_of
from eqsat.language.ops import spec
from eqsat.language.terms import OPAQUE, DType, Graph, TensorType, evaluate

Outputs = Mapping[str, Any]

#: The name of inputs as they are drawn.
ORDINARY = "ordinary inputs"
#: Largest relative difference between the outputs of a finalist and the original's where they run.
DRIFT = 1e-4
#: Factor by which a result may be farther from the truth than the original, on inputs of unusual size.
LOSS = 10.0
#: Arithmetic operations up to which the original is run in float64 to know the truth.
MOST_WORK = 4 * 10**9
#: Means and scales of inputs besides normal ones.
_UNUSUAL: tuple[tuple[str, float, float], ...] = (
    ("inputs of mean 100", 100.0, 1.0),
    ("inputs of mean 10 000", 1e4, 1.0),
    ("inputs 1 000 times as large", 0.0, 1e3),
    ("inputs 1 000 times as small", 0.0, 1e-3),
)


@dataclass(frozen=True)
class InputSet:
    """Inputs of one kind; `ordinary` ones are such as the model is made for, as far as it shows."""

    name: str
    feeds: Mapping[str, Any]
    ordinary: bool = True


@dataclass(frozen=True)
class Verdict:
    """The reason why a program may not stand for the original, or None, and its losses on inputs of unusual size."""

    refused: str | None = None
    losses: tuple[str, ...] = ()


def samples(graph: Graph, draws: Sequence[Mapping[str, Any]], seed: int) -> list[InputSet]:
    """Drawn inputs, then inputs of other means and scales, those first that suit the constants the graph takes off.

    Inputs for which the model brings a default keep that: it may be a size, and 100 times a size ends in no time.
    """
    rng = np.random.default_rng([seed, 3])
    listed = [InputSet(ORDINARY, feeds) for feeds in draws]
    first = draws[0]
    drawn = set(first) - set(defaults_of(graph))
    about = {name: (centre, spread) for name, (centre, spread) in centres(graph).items() if name in drawn}
    if about:
        feeds = {n: _drawn(a, *about[n], rng) if n in about else a for n, a in first.items()}
        listed.append(InputSet("inputs near the constants that it takes off them", feeds))
    floats = {name for name in drawn if _is_float(graph, name)}
    if floats:
        for title, mean, scale in _UNUSUAL:
            feeds = {n: _drawn(a, mean, scale, rng) if n in floats else a for n, a in first.items()}
            listed.append(InputSet(title, feeds, ordinary=False))
    return listed


class Judge:
    """The outputs of the original on samples, and the truth in float64 where rounding needs a judge."""

    def __init__(self, original: Graph, given: Sequence[InputSet], program: Callable[[Mapping[str, Any]], Outputs]):
        self.original = original
        self.samples: list[InputSet] = []
        self.references: list[Outputs] = []
        self._truths: dict[int, Outputs | None] = {}
        for sample in given:
            try:
                reference = program(sample.feeds)
            except EqsatError:
                if sample is given[0]:
                    raise
                continue  # the original does not take such inputs, so nobody feeds them
            self.samples.append(sample)
            self.references.append(reference)

    def verdict(self, program: Callable[[Mapping[str, Any]], Outputs], limit: float = DRIFT) -> Verdict:
        """The verdict on a program whose outputs may be off by a relative `limit`.

        Both graphs are equal in the reals, which the certificate shows; a model may still amplify the rounding of a sum
        in another order beyond use, and a sum may lose in another order what was exact in the first. On ordinary inputs
        the limit holds; on unusual ones a program is refused where it is far from what float64 makes of them, and the
        original is not. A limit above the usual one is for programs that are meant to be off: unusual inputs say
        nothing of them. Integers and truth values must be the original's, or those of float64.
        """
        losses: list[str] = []
        for index, (sample, reference) in enumerate(zip(self.samples, self.references, strict=True)):
            if not sample.ordinary and limit > DRIFT:
                continue
            outputs = program(sample.feeds)
            for name, value in self.original.outputs.items():
                type = self.original.type(value)
                if not isinstance(type, TensorType) or type.dtype is DType.STRING:
                    continue
                one, two = np.asarray(reference[name]), np.asarray(outputs[name])
                fault = (
                    self._float_fault(index, name, one, two, _least(type, limit))
                    if type.dtype.is_float
                    else self._exact_fault(index, name, one, two)
                )
                if fault is not None and (sample.ordinary or fault.is_proved):
                    return Verdict(fault.text if sample.name == ORDINARY else f"{fault.text} on {sample.name}")
                if fault is not None:
                    losses.append(f"on {sample.name} {fault.text}")
        return Verdict(None, tuple(losses))

    def _float_fault(self, index: int, name: str, one: Any, two: Any, limit: float) -> _Fault | None:
        one, two = one.astype(np.float64), two.astype(np.float64)
        difference = relative_difference(one, two)
        if difference <= limit:
            return None
        text = f"rounding moves its output {name!r} by {difference:.0e}, more than {limit:.0e}, from the original's"
        if self.samples[index].name == ORDINARY:
            return _Fault(text, True)
        truth = self._truth(index)
        if truth is None or name not in truth:
            return _Fault(text, False)
        exact = np.asarray(truth[name]).astype(np.float64)
        if one.shape == two.shape:
            # Where the original makes no finite number of such inputs, and float64 none either, there is no answer to
            # be far from: a number is as good, and so is anything where there was NaN.
            unknown = ~np.isfinite(exact) & ~np.isfinite(one) & (np.isnan(one) | np.isfinite(two))
            exact, one, two = exact[~unknown], one[~unknown], two[~unknown]
        before, after = relative_difference(exact, one), relative_difference(exact, two)
        return _Fault(text, True) if after > max(limit, LOSS * before) else None

    def _exact_fault(self, index: int, name: str, one: Any, two: Any) -> _Fault | None:
        if one.shape == two.shape and np.array_equal(one, two):
            return None
        count = int((one != two).sum()) if one.shape == two.shape else one.size
        text = f"its output {name!r} differs from the original's in {count} of {one.size} elements"
        truth = self._truth(index)
        if truth is None or name not in truth or one.shape != two.shape:
            return _Fault(text, True)
        # Rounding may decide which of two equal numbers is greater; either answer is right that float64 gives.
        return None if np.array_equal(two[one != two], np.asarray(truth[name])[one != two]) else _Fault(text, True)

    def _truth(self, index: int) -> Outputs | None:
        """The original's outputs in float64 on a sample; None where they cannot be had, or not in reasonable time."""
        if index not in self._truths:
            self._truths[index] = _in_float64(self.original, self.samples[index].feeds)
        return self._truths[index]


@dataclass(frozen=True)
class _Fault:
    """A difference between two programs; proved where it is known to be the fault of the new one."""

    text: str
    is_proved: bool


@np.errstate(all="ignore")
def _in_float64(graph: Graph, feeds: Mapping[str, Any]) -> Outputs | None:
    work = _work(graph, feeds)
    if work is None or work > MOST_WORK:
        return None
    wide = {name: array.astype(np.float64) if _is_float(graph, name) else array for name, array in feeds.items()}
    try:
        return run(graph, wide, Floats(wide=True))
    except (IndexError, ValueError, ZeroDivisionError, EqsatError):
        return None


def _work(graph: Graph, feeds: Mapping[str, Any]) -> int | None:
    """Arithmetic operations of a run on these inputs; None where a node cannot be run here or its work not counted."""
    sizes: dict[str, int] = {}
    for name, array in feeds.items():
        type = graph.type(name)
        if isinstance(type, TensorType) and type.shape is not None:
            sizes |= {str(d): n for d, n in zip(type.shape, np.shape(array), strict=True) if not isinstance(d, int)}
    total = 0
    for node in graph.nodes:
        if node.op == OPAQUE:
            return None
        declared = spec(node.op)
        types = [None if v is None else graph.type(v) for v in node.inputs]
        results = [t for t in map(graph.type, node.outputs) if isinstance(t, TensorType)]
        tensors = [t for t in types if t is None or isinstance(t, TensorType)]
        if declared.flops is None or len(tensors) != len(types):
            continue
        try:
            total += evaluate(declared.flops(tensors, results, node.attrs), sizes)
        except (KeyError, EqsatError, TypeError):
            return None
    return total


def _drawn(array: Any, mean: Any, scale: Any, rng: np.random.Generator) -> Any:
    """Normal numbers of a mean and a scale in the shape and type of an array; integers within their range."""
    values = mean + scale * rng.standard_normal(array.shape)
    if array.dtype.kind in "iu":
        limits = np.iinfo(array.dtype)
        values = np.clip(np.rint(values), limits.min, limits.max)
    with np.errstate(over="ignore"):
        return values.astype(array.dtype)


def _is_float(graph: Graph, name: str) -> bool:
    type = graph.type(name)
    return isinstance(type, TensorType) and type.dtype.is_float


def _least(type: TensorType, limit: float) -> float:
    return max(limit, 100 * float(ml_dtypes.finfo(type.dtype.numpy).eps))
