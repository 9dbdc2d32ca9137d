"""Values of two regions compared on random data: exactly modulo a prime, or in float64."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from eqsat.errors import EqsatError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.arithmetic.residues import PRIME, Residues
from eqsat.language.graphs.interpret import run
from eqsat.language.terms import DType, Graph, TensorType

#: Random draws for each region and each assignment of sizes.
DRAWS = 2
#: Constants of at most this many elements keep their values in exact checks; larger ones become random, since what
#: holds for all weights holds for these.
EXACT_ELEMENTS = 16
#: Sorts of float data, made of normal numbers: the next is tried where a region has no finite result on one. Logarithms
#: and roots want positive data, some inverse functions data above 1 or below.
_SORTS: tuple[Callable[[Any], Any], ...] = (
    np.asarray,
    np.abs,
    lambda x: 1 + np.abs(x),
    lambda x: np.abs(x) / (1 + np.abs(x)),
)
#: Integers are drawn up to this distance from zero, where what reads them takes any.
INTEGERS = 9
#: Constants of at most this many bytes are told apart by their bytes, larger ones by where they lie in memory.
DIGESTED = 1 << 20


def agree_exactly(
    old: Graph, new: Graph, targets: Mapping[str, str], sizes: Mapping[str, int], seed: int, draws: int = DRAWS
) -> bool:
    """Return whether two regions agree modulo the prime on every draw.

    `targets` maps each input of the old region to the input of the new one that it equals. False says only that this
    arithmetic does not show it.
    """
    if not (_all_tensors(old) and _all_tensors(new)):
        return False
    for draw in range(draws):
        weights: dict[Any, Any] = {}
        drawn = DrawnResidues(np.random.default_rng([seed, draw, 2]), weights)
        pair = _results(old, new, targets, sizes, drawn, drawn, [seed, draw, 0])
        if pair is None or not all(np.array_equal(pair[0][k], pair[1][k]) for k in old.outputs):
            return False
    return True


def float_difference(
    old: Graph,
    new: Graph,
    targets: Mapping[str, str],
    sizes: Mapping[str, int],
    seed: int,
    draws: int = DRAWS,
    widest: bool = False,
) -> float | None:
    """The largest relative difference of two regions over draws in float64.

    None where the old region cannot be run on random data, or has no finite result on data of any sort. The `widest`
    region there is, whose result constants may make NaN whatever the data, must have the same infinities and NaN then.
    """
    if not (_all_tensors(old) and _all_tensors(new)):
        return None
    worst = 0.0
    for draw in range(draws):
        for sort in _SORTS:
            pair = _results(old, new, targets, sizes, Floats(wide=True), None, [seed, draw, 1], sort)
            telling = pair is not None and all(_is_telling(np.asarray(v)) for v in pair[0].values())
            if pair is None or telling:
                break
        if pair is None or not (telling or widest):
            return None
        worst = max(
            [worst, *(relative_difference(np.asarray(pair[0][k]), np.asarray(pair[1][k])) for k in old.outputs)]
        )
    return worst


def _is_telling(array: Any) -> bool:
    """Return False if every element is infinite or NaN."""
    return array.dtype.kind != "f" or not array.size or bool(np.isfinite(array).any())


class DrawnResidues(Residues):
    """Residues with large constants replaced by random ones, the same wherever the same elements occur."""

    def __init__(self, rng: np.random.Generator, weights: dict[Any, Any]) -> None:
        super().__init__()
        self._rng, self._weights = rng, weights

    def constant(self, array: Any, type: TensorType) -> Any:
        """The exact residues of a small constant or of integers, random ones for the rest."""
        if not type.dtype.is_float or array.size <= EXACT_ELEMENTS:
            return super().constant(array, type)
        key: Any = (array.__array_interface__["data"][0], array.shape, array.strides)
        if array.nbytes <= DIGESTED:
            key = (hashlib.blake2b(np.ascontiguousarray(array).data).digest(), array.shape)
        if key not in self._weights:
            self._weights[key] = self._rng.integers(0, PRIME, array.shape)
        return self._weights[key]


@np.errstate(all="ignore")
def _results(
    old: Graph,
    new: Graph,
    targets: Mapping[str, str],
    sizes: Mapping[str, int],
    interpretation: Any,
    second: Any,
    seed: list[int],
    sort: Callable[[Any], Any] = np.asarray,
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Both regions' outputs on one draw; None where the old one refuses the data.

    Integers are drawn from both sides of zero; where they serve as indices of too short an axis, from 0 and 1, and
    where an axis is too short even for that, all are 0.
    """
    exact = isinstance(interpretation, Residues)
    types = {v: new.type(v) for v in new.inputs} | {targets[v]: old.type(v) for v in old.inputs}
    kinds = {t.dtype for t in types.values() if isinstance(t, TensorType)}
    wide = any(not kind.is_float and kind is not DType.BOOL for kind in kinds)
    for low, high in ((-INTEGERS, INTEGERS + 1), (0, 2), (0, 1))[0 if wide else 1 :]:
        rng = np.random.default_rng(seed)
        leaves = {v: _random(t, sizes, rng, exact, (low, high), sort) for v, t in types.items()}
        try:
            first = run(old, {v: leaves[targets[v]] for v in old.inputs}, interpretation, sizes=sizes)
        except (IndexError, ValueError, ZeroDivisionError, EqsatError):
            continue
        try:
            return first, run(new, {v: leaves[v] for v in new.inputs}, second or interpretation, sizes=sizes)
        except (IndexError, ValueError, ZeroDivisionError, EqsatError):
            return first, {name: np.array(np.nan) for name in first}
    return None


def relative_difference(reference: Any, result: Any) -> float:
    """‖result − reference‖ / ‖reference‖ over the finite elements; infinite where shapes or non-finite elements differ.

    >>> relative_difference(np.ones(4), np.ones(4) * 1.5)
    0.5
    """
    if reference.shape != result.shape:
        return float("inf")
    if reference.dtype.kind not in "fc":
        return 0.0 if np.array_equal(reference, result) else float("inf")
    finite = np.isfinite(reference)
    if not np.array_equal(finite, np.isfinite(result)):
        return float("inf")
    if not finite.all():
        if not np.array_equal(reference[~finite], result[~finite], equal_nan=True):
            return float("inf")
        reference, result = reference[finite], result[finite]
    difference = float(np.linalg.norm((result - reference).ravel()))
    norm = float(np.linalg.norm(reference.ravel()))
    return difference / norm if norm else difference


def _all_tensors(graph: Graph) -> bool:
    types = [graph.type(v) for v in graph.inputs]
    return all(isinstance(t, TensorType) and t.shape is not None for t in types)


def _random(
    type: Any,
    sizes: Mapping[str, int],
    rng: np.random.Generator,
    exact: bool,
    integers: tuple[int, int],
    sort: Callable[[Any], Any],
) -> Any:
    """Random elements for a leaf: residues, normal floats, truth values, or small integers."""
    shape = type.at(sizes).static
    if type.dtype.is_float:
        return rng.integers(0, PRIME, shape) if exact else sort(rng.standard_normal(shape))
    low, high = (0, min(2, integers[1])) if type.dtype is DType.BOOL else integers
    return rng.integers(low, high, shape).astype(type.dtype.numpy)
