"""Ranges of values over calibration data: observed once in bounded memory, then derived by any method.

Elements are counted in a histogram whose bins are the numbers of float32 that share their sign, exponent and first bits
of mantissa. A bin is never wider than 1/256 of its elements, whatever the range turns out to be, so nothing is rebinned
as the range grows, and the counts do not depend on the order of the data.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from eqsat.errors import UsageError, nearest
from eqsat.language.terms.scale import Scale
from eqsat.quantisation.scales import activations, asymmetric

Array = np.ndarray[Any, np.dtype[Any]]

#: The way to a range: all of it, all but the largest magnitudes, least divergence, or least squared error.
RangeMethod: TypeAlias = Literal["max", "percentile", "kl", "mse"]
#: The share of elements, in percent, that "percentile" keeps.
PERCENTILE = 99.99

#: Bits of the mantissa that tell bins apart, and those of float32 that do not.
_BITS = 8
_DROPPED = 23 - _BITS
_PER_OCTAVE = 1 << _BITS
_OCTAVES = 1 << 9  # by sign and exponent
#: Elements that are counted at once: what stays in a cache.
_CHUNK = 1 << 18
#: Bins of magnitudes for "kl", by how many of them candidates differ, the elements that a clipped distribution is taken
#: to have where only those that were clipped are, and the divergence by which a tighter bound has to be better.
_KL_BINS, _KL_STRIDE, _KL_LEAST, _KL_MARGIN = 2048, 8, 1e-4, 1e-9
#: The gain in mean squared error from which a zero point is no longer 0 or the middle.
_PAYS = 0.9
#: Ranges tried for "mse" within an octave, and octaves.
_TRIED_OCTAVE, _TRIED_OCTAVES = 8, 8


class Histogram(NamedTuple):
    """Counts of elements between the lower and the upper ends of bins, in ascending order."""

    lower: Array
    upper: Array
    counts: Array

    @property
    def magnitudes(self) -> Histogram:
        """The histogram of the absolute values."""
        negative = self.upper <= 0
        far = np.where(negative, -self.lower, self.upper)
        lower, place = np.unique(np.where(negative, -self.upper, self.lower), return_inverse=True)
        upper = lower.copy()
        np.maximum.at(upper, place, far)
        return Histogram(lower, upper, np.bincount(place, weights=self.counts, minlength=len(lower)))


class Observer:
    """Exact extremes and a histogram of arrays that are seen one after another.

    Elements that are not finite are counted in `excluded` and otherwise left out, so that no range has a NaN. Memory is
    at most 1 MiB, some 100 KiB for most activations.

    >>> observer = Observer()
    >>> observer.see(np.array([0.0, 1.0, -3.0], np.float32))
    >>> observer.see(np.array([2.0, np.inf], np.float32))
    >>> observer.low, observer.high, observer.count, observer.excluded
    (-3.0, 2.0, 4, 1)
    >>> observer.range("max")
    (-3.0, 2.0)
    """

    def __init__(self) -> None:
        self.count, self.excluded = 0, 0
        self._low, self._high = np.inf, -np.inf
        self._squares = 0.0
        self._octaves: dict[int, Array] = {}

    def see(self, array: Array) -> None:
        """Count the elements of an array of numbers, as float32."""
        flat = np.asarray(array).reshape(-1)
        self.__dict__.pop("histogram", None)
        for start in range(0, flat.size, _CHUNK):
            with np.errstate(over="ignore"):
                self._count(np.ascontiguousarray(flat[start : start + _CHUNK], np.float32))

    def _count(self, chunk: Array) -> None:
        low, high = float(chunk.min()), float(chunk.max())
        if not (np.isfinite(low) and np.isfinite(high)):
            finite = chunk[np.isfinite(chunk)]
            self.excluded += chunk.size - finite.size
            if not finite.size:
                return
            chunk, low, high = finite, float(finite.min()), float(finite.max())
        self.count += chunk.size
        self._low, self._high = min(self._low, low), max(self._high, high)
        wide = chunk.astype(np.float64)
        self._squares += float(np.dot(wide, wide))
        bins = (chunk.view(np.uint32) >> np.uint32(_DROPPED)).view(np.int32)
        counts = np.bincount(bins, minlength=_OCTAVES * _PER_OCTAVE).reshape(_OCTAVES, _PER_OCTAVE)
        for octave in np.flatnonzero(counts.any(axis=1)).tolist():
            if octave in self._octaves:
                self._octaves[octave] += counts[octave]
            else:
                self._octaves[octave] = counts[octave].copy()

    @property
    def low(self) -> float:
        """The least finite element; 0 if none was seen."""
        return self._low if self.count else 0.0

    @property
    def high(self) -> float:
        """The largest finite element; 0 if none was seen."""
        return self._high if self.count else 0.0

    @property
    def mean_square(self) -> float:
        """The mean of the squared finite elements; 0 if none was seen."""
        return self._squares / self.count if self.count else 0.0

    @cached_property
    def histogram(self) -> Histogram:
        """The bins that have elements, cut at the extremes."""
        octaves = np.array(sorted(self._octaves), np.int64)
        if not octaves.size:
            return Histogram(np.zeros(0), np.zeros(0), np.zeros(0, np.int64))
        bins = (octaves[:, None] * _PER_OCTAVE + np.arange(_PER_OCTAVE)).reshape(-1)
        counts = np.concatenate([self._octaves[octave] for octave in octaves.tolist()])
        bins, counts = bins[counts > 0], counts[counts > 0]
        half = _OCTAVES * _PER_OCTAVE // 2
        near, far = _magnitude(bins % half), _magnitude(bins % half + 1)
        lower, upper = np.where(bins < half, near, -far), np.where(bins < half, far, -near)
        order = np.argsort(lower, kind="stable")
        return Histogram(
            np.clip(lower, self.low, self.high)[order], np.clip(upper, self.low, self.high)[order], counts[order]
        )

    def range(
        self,
        method: RangeMethod = "max",
        *,
        percentile: float = PERCENTILE,
        scheme: Callable[[float, float], Scale] = activations,
    ) -> tuple[float, float]:
        """The least and the largest element that a scale should represent; (0, 0) if none was seen.

        "max" is the range of all elements. The others clip magnitudes at a bound: "percentile" at the least one that as
        many percent of the elements keep within, "kl" where the Kullback-Leibler divergence of the quantised
        distribution is least (S. Migacz, 8-bit inference with TensorRT, GTC 2017), "mse" where the mean squared error
        of the scale that `scheme` makes of the range is least. UsageError for another method, or a percentile that is
        not above 0 and at most 100.
        """
        if method not in get_args(RangeMethod):
            known = get_args(RangeMethod)
            raise UsageError(
                f"range by {method!r}", expected=" or ".join(map(repr, known)), remedy=nearest(method, known)
            )
        if not 0 < percentile <= 100:
            raise UsageError(f"percentile = {percentile!r}", expected="a number above 0, at most 100")
        if method == "max" or self.low == self.high == 0:
            return self.low, self.high
        if method == "percentile":
            return self._clipped(_percentile(self.histogram.magnitudes, percentile))
        if method == "kl":
            # One more bit of magnitude where no bit is spent on a sign.
            levels = 128 if self.low < 0 < self.high else 256
            return self._clipped(_least_divergence(self.histogram.magnitudes, levels))
        return self._clipped(self._least_error(scheme))

    def expected_error(self, scale: Scale) -> float:
        """The mean squared error of rounding and clipping by a scale with one step; 0 if nothing was seen.

        Elements are taken as uniform within their bin. UsageError for a scale with several steps.
        """
        if scale.axis is not None:
            raise UsageError("the expected error of a scale by channel", expected="a scale with one step")
        if not self.count:
            return 0.0
        lower, upper, counts = self.histogram
        step, zero = scale.steps[0], scale.zeros[0]
        a, b = lower / step, upper / step
        least, most = scale.least - zero, scale.most - zero
        # A bin of no width, or nearly none, is a point: the difference of integrals would cancel.
        wide = b - a > 1e-6 * np.maximum(1.0, np.maximum(np.abs(a), np.abs(b)))
        spread = np.where(wide, b - a, 1.0)
        middle = a / 2 + b / 2
        at_point = (middle - np.clip(np.rint(middle), least, most)) ** 2
        squared = np.where(wide, (_integral(b, least, most) - _integral(a, least, most)) / spread, at_point)
        return float(np.dot(np.maximum(squared, 0.0), counts)) * step * step / self.count

    def _clipped(self, bound: float) -> tuple[float, float]:
        return min(max(self.low, -bound), bound), max(min(self.high, bound), -bound)

    def _least_error(self, scheme: Callable[[float, float], Scale]) -> float:
        """The bound of magnitudes that has the least expected error: of a geometric sequence, then near the best."""
        most = max(-self.low, self.high)

        def best(exponents: Array) -> float:
            errors = [self.expected_error(scheme(*self._clipped(float(most * 2.0**-one)))) for one in exponents]
            return float(exponents[int(np.argmin(errors))])

        coarse = best(np.arange(_TRIED_OCTAVE * _TRIED_OCTAVES + 1) / _TRIED_OCTAVE)
        fine = coarse + np.arange(-_TRIED_OCTAVE, _TRIED_OCTAVE + 1) / _TRIED_OCTAVE**2
        return float(most * 2.0 ** -best(fine[fine >= 0]))


def best_scale(observer: Observer) -> Scale:
    """The scale of a value by the range of least squared error: with a zero point of its own where that pays."""
    low, high = observer.range("mse")
    plain, free = activations(low, high), asymmetric(*observer.range("mse", scheme=asymmetric))
    return free if observer.expected_error(free) < _PAYS * observer.expected_error(plain) else plain


def _magnitude(bins: Array) -> Array:
    """The magnitudes at which bins begin, in float64; the largest finite one for the bin after the last."""
    found = (bins.astype(np.uint32) << np.uint32(_DROPPED)).view(np.float32)
    return np.minimum(found, np.finfo(np.float32).max).astype(np.float64)


def _integral(u: Array, least: int, most: int) -> Array:
    """The integral from 0 to u of the squared distance to the nearest whole number from `least` to `most`."""
    near = np.clip(np.rint(u), least, most)
    return np.asarray(near / 12 + (u - near) ** 3 / 3)


def _percentile(magnitudes: Histogram, percent: float) -> float:
    """The magnitude that as many percent of the elements do not exceed, linear within a bin."""
    lower, upper, counts = magnitudes
    total = np.cumsum(counts)
    wanted = total[-1] * percent / 100
    index = min(int(np.searchsorted(total, wanted)), len(counts) - 1)
    share = 1 - (total[index] - wanted) / counts[index]
    return float(lower[index] + (upper[index] - lower[index]) * share)


def _least_divergence(magnitudes: Histogram, levels: int) -> float:
    """The bound of magnitudes at which few levels tell least apart from all 2048 bins of magnitudes.

    Zeros are left out: every scale represents them exactly. Of bounds that are as good the largest is taken: a few
    distinct values are told apart by any.
    """
    nonzero = magnitudes.lower > 0
    if not nonzero.any():
        return float(magnitudes.upper[-1])
    counts, width = _linear(Histogram(*(part[nonzero] for part in magnitudes)))
    best, kept = np.inf, _KL_BINS
    for bins in range(_KL_BINS, levels - 1, -_KL_STRIDE):
        divergence = _divergence(counts, bins, levels)
        if divergence < best - _KL_MARGIN:
            best, kept = divergence, bins
    return kept * width


def _linear(magnitudes: Histogram) -> tuple[Array, float]:
    """Counts of magnitudes in 2048 bins of one width, and that width."""
    lower, upper, counts = magnitudes
    width = float(upper[-1]) / _KL_BINS
    edges = np.arange(_KL_BINS + 1) * width
    ends = np.stack([lower, upper], axis=1).reshape(-1)
    total = np.cumsum(counts)
    below = np.stack([total - counts, total], axis=1).reshape(-1)
    cumulative = np.interp(edges, ends, below.astype(np.float64))
    cumulative[-1] = total[-1]
    return np.diff(cumulative), width


def _divergence(counts: Array, bins: int, levels: int) -> float:
    """The divergence of a distribution, clipped to its first bins, from itself in few levels; inf if all is clipped."""
    inner = counts[:bins]
    if not inner.any():
        return float(np.inf)
    reference = inner.copy()
    reference[-1] += counts[bins:].sum()
    level = np.arange(bins) * levels // bins
    occupied = inner > 0
    mass = np.bincount(level, weights=inner, minlength=levels)
    members = np.bincount(level, weights=occupied, minlength=levels)
    quantised = np.where(occupied, (mass / np.maximum(members, 1.0))[level], 0.0)
    present = reference > 0
    quantised = np.maximum(quantised[present], _KL_LEAST)
    p, q = reference[present] / reference.sum(), quantised / quantised.sum()
    return float(np.sum(p * np.log(p / q)))
