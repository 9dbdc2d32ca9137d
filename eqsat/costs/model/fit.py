"""Estimates for operators that a table lacks: a device's roofline, fitted to the operators that it has."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from eqsat.costs.devices.device import Device
from eqsat.costs.kernels.fusion import FUSED
from eqsat.costs.kernels.key import OpKey, is_on_integers
from eqsat.costs.kernels.work import Work, family, work_of
from eqsat.costs.table.entry import Entry
from eqsat.language.ops import OPS

#: Number of measured entries of an operator that correct the estimates of its other shapes, and number that replace
#: them by a sum of terms of their own; neither leaves the factor around the roofline as scaled before.
SCALED_ENTRIES = 3
REGRESSED_ENTRIES = 6
FACTOR = 4.0
#: Distance, in logarithms of sizes, within which the error of a neighbour counts much, and the weight of having no
#: neighbour.
_REACH = 0.5
_PRIOR = 0.1
#: The resolution of a measurement: shorter times are taken for this long, so that ratios exist.
_LEAST_SECONDS = 1e-9

Array = np.ndarray[Any, np.dtype[np.float64]]
Estimator: TypeAlias = "Callable[[Work], float]"


@dataclass(frozen=True, slots=True)
class Sample:
    """A measured operator: its work and its seconds."""

    work: Work
    seconds: float


class Fit:
    """The roofline of a device, fitted to measured operators, one variant of an operator at a time.

    A variant's base is the roofline times the median of measured/estimated, or a sum of terms with coefficients of 0 or
    more (a launch, arithmetic, near and far bytes, bytes of constants, elements), whichever errs less on entries held
    back from it. The base's error near an operator, by the entries of similar size and shape, corrects it there.
    Without entries the estimate is the roofline itself.
    """

    def __init__(self, device: Device, entries: Mapping[str, Entry]) -> None:
        self.device = device
        # Keys are read when an operator of their family is first asked for: a table has thousands, a model few.
        self._texts: dict[str, list[str]] = {}
        for text in sorted(text for text in entries if not is_on_integers(text)):
            self._texts.setdefault(family(text.partition(" ")[0]), []).append(text)
        self._entries = entries
        self._estimators: dict[str, dict[str, Estimator]] = {}

    def knows(self, op: str) -> bool:
        """Return whether some kernel of an operator was measured."""
        return family(op) in self._texts

    def seconds(self, work: Work) -> float:
        """The estimate for one operator."""
        name = work.variant.partition("/")[0]
        if name not in self._estimators:
            self._estimators[name] = self._fitted(name)
        estimator = self._estimators[name].get(work.variant, self.device.roofline)
        return estimator(work)

    def _fitted(self, name: str) -> dict[str, Estimator]:
        measured = tuple((text, self._entries[text].seconds) for text in self._texts.get(name, ()))
        ops = {text.partition(" ")[0] for text, _ in measured}
        if all(op in OPS and OPS[op].is_shipped for op in ops):
            return _fitted_once(self.device, measured)
        return _fitted_to(self.device, measured)  # of what a user declares, the work may be another tomorrow


def _fitted_to(device: Device, measured: Sequence[tuple[str, float]]) -> dict[str, Estimator]:
    """The estimators of an operator's variants, fitted to the seconds of keys."""
    return {variant: fitted(device, group) for variant, group in samples_of(measured).items()}


#: A call fits the families of operators that its model has; the next call finds most of them again.
_fitted_once = lru_cache(maxsize=512)(_fitted_to)


def samples_of(measured: Iterable[tuple[str, float]]) -> dict[str, list[Sample]]:
    """Measured operators by variant; without fused kernels, and without operators unknown to this version."""
    by_variant: dict[str, list[Sample]] = {}
    for text, seconds in sorted(measured):
        work = known_work(text)
        if work is not None:
            by_variant.setdefault(work.variant, []).append(Sample(work, max(seconds, _LEAST_SECONDS)))
    return by_variant


def known_work(text: str) -> Work | None:
    """The work of the operator that a key stands for, where it is one that this version knows, run on plain layouts."""
    if FUSED in text:
        return None
    key = OpKey.parse(text)
    declared = OPS.get(key.op)
    if declared is None or not key.is_measurable or key.layouts or key.result or key.arithmetic:
        return None
    results = declared.result_types(key.operands, key.attrs)
    return work_of(key.op, key.attrs, key.operands, results, key.const_operands)


def fitted(device: Device, samples: Sequence[Sample]) -> Estimator:
    """The estimator for one variant of an operator: the better base, corrected by its errors nearby."""
    return _corrected(_base(device, samples), samples) if samples else device.roofline


def error(estimator: Estimator, samples: Sequence[Sample]) -> list[float]:
    """By how much each sample is missed: the absolute logarithm of estimated/measured."""
    return [abs(math.log(estimator(s.work) / s.seconds)) for s in samples]


def folds(count: int, parts: int, seed: int = 0) -> list[tuple[list[int], list[int]]]:
    """`count` indices, shuffled and split into parts: for each, those outside and those inside."""
    order = [int(i) for i in np.random.default_rng(seed).permutation(count)]
    inside = [order[part::parts] for part in range(parts)]
    return [(sorted(set(order) - set(fold)), fold) for fold in inside if fold]


def _base(device: Device, samples: Sequence[Sample]) -> Estimator:
    if len(samples) < REGRESSED_ENTRIES:
        return _scaled(device, samples)
    makers = (_scaled, _regressed)
    missed = [0.0 for _ in makers]
    for outside, inside in folds(len(samples), 5):
        for i, make in enumerate(makers):
            estimator = make(device, [samples[j] for j in outside])
            missed[i] += sum(error(estimator, [samples[j] for j in inside]))
    return makers[missed.index(min(missed))](device, samples)


def _scaled(device: Device, samples: Sequence[Sample]) -> Estimator:
    """The roofline times the median of measured/estimated."""
    if len(samples) < SCALED_ENTRIES:
        return device.roofline
    factor = float(np.median([s.seconds / device.roofline(s.work) for s in samples]))
    return lambda work: factor * device.roofline(work)


def _regressed(device: Device, samples: Sequence[Sample]) -> Estimator:
    """A sum of terms that errs least in relative terms, by least absolute deviations."""
    scaled = _scaled(device, samples)
    rows = np.array([_terms(device, s.work) for s in samples]) / np.array([[s.seconds] for s in samples])
    weights = np.ones(len(samples))
    for _ in range(6):
        coefficients = nonnegative(rows * weights[:, None], weights)
        # Squares weighed by the inverse of what is missed are absolute values; a floor keeps the weights finite.
        weights = 1 / np.sqrt(np.maximum(np.abs(rows @ coefficients - 1), 0.02))

    def estimate(work: Work) -> float:
        near = scaled(work)
        return min(max(float(_terms(device, work) @ coefficients), near / FACTOR), near * FACTOR)

    return estimate


def _corrected(base: Estimator, samples: Sequence[Sample]) -> Estimator:
    """The base times the factor by which neighbours in size and shape exceed it, if there are any."""
    places = np.array([_place(s.work) for s in samples])
    missed = np.array([math.log(s.seconds / base(s.work)) for s in samples])

    def estimate(work: Work) -> float:
        distances = np.sum((places - _place(work)) ** 2, axis=1)
        closeness = np.exp(-distances / (2 * _REACH**2))
        return base(work) * math.exp(float(closeness @ missed / (_PRIOR + closeness.sum())))

    return estimate


def _terms(device: Device, work: Work) -> Array:
    """Terms that a time may be a sum of, each in about the seconds that the roofline gives it."""
    moved = work.bytes - work.weight_bytes
    near = moved <= device.near_bytes
    return np.array(
        [
            device.launch,
            work.flops / device.peak(work.dtype),
            moved / device.near_bandwidth if near else 0.0,
            0.0 if near else moved / device.bandwidth,
            work.weight_bytes / device.weight_bandwidth,
            work.elements * 1e-10,
        ]
    )


def _place(work: Work) -> Array:
    """The position of an operator among those of its variant: logarithms of its sizes, so that 1 is a factor of e."""
    sizes = (work.elements + 1, work.flops + 1, work.bytes + 1, math.sqrt(work.weight_bytes + 1), work.inner + 1)
    return np.log([*sizes, work.spread])


def nonnegative(rows: Array, targets: Array) -> Array:
    """The coefficients of 0 or more whose sums of the rows' columns are nearest to the targets, by least squares.

    For few columns: the optimum is the least-squares solution on some of them, so all choices are solved at once.

    >>> nonnegative(np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]]), np.array([3.0, 2.0, 1.0])).round(6).tolist()
    [2.0, 0.0]
    """
    columns = rows.shape[1]
    scale = np.maximum(np.abs(rows).max(axis=0), 1e-300)
    gram = (rows / scale).T @ (rows / scale)
    moments = (rows / scale).T @ targets
    chosen = np.array(list(itertools.product((0.0, 1.0), repeat=columns)))
    square = gram * chosen[:, :, None] * chosen[:, None, :]
    # A column that is left out, or that others make up, gets a diagonal of its own, so that all can be solved.
    diagonal = np.where(chosen > 0, 1e-9 * (1 + gram.trace()), 1.0)
    square[:, range(columns), range(columns)] += diagonal
    solutions = np.linalg.solve(square, (moments * chosen)[:, :, None])[:, :, 0]
    solutions = np.where(solutions >= 0, solutions, np.nan)
    objective = np.einsum("ij,jk,ik->i", solutions, gram, solutions) - 2 * solutions @ moments
    best = int(np.nanargmin(objective))
    solution, positive = solutions[best], chosen[best] > 0
    # Without the diagonal, which moves what nearly dependent columns share.
    exact = np.linalg.lstsq((rows / scale)[:, positive], targets, rcond=None)[0]
    if np.all(exact >= 0):
        solution[positive] = exact
    return np.asarray(solution / scale)
