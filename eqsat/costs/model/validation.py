"""Accuracy of estimates on measured operators: cross-validation of the fit against entries held back from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eqsat.costs.devices.device import Device
from eqsat.costs.model.fit import error, fitted, folds, samples_of
from eqsat.costs.table.entry import Entry
from eqsat.errors import CostError, UsageError


@dataclass(frozen=True, slots=True)
class Accuracy:
    """By which factor estimates miss measured times: the median and the ninetieth percentile, before and after fitting.

    A factor of 1.1 is an estimate 10 % above or below what was measured.
    """

    variant: str
    entries: int
    roofline: tuple[float, float]
    fitted: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Validation:
    """The accuracy over all entries, and by variant of an operator, those with most entries first."""

    overall: Accuracy
    variants: tuple[Accuracy, ...]


def validate(device: Device, entries: Mapping[str, Entry], parts: int = 5, seed: int = 0) -> Validation:
    """Estimate each entry by a fit to the entries of the other folds; UsageError for fewer than 2 folds.

    CostError where there is nothing to hold back.
    """
    if parts < 2:
        raise UsageError(f"folds = {parts}", expected="2 folds or more")
    if seed < 0:
        raise UsageError(f"seed = {seed}", expected="a seed of 0 or more")
    samples = samples_of((text, entry.seconds) for text, entry in entries.items())
    if sum(map(len, samples.values())) < parts:
        raise CostError(
            f"{len(entries)} entries in this environment, too few to hold some back",
            expected=f"at least {parts}, one for each fold",
            remedy="fill the table with `eqsat measure`",
        )
    plain: list[float] = []
    after: list[float] = []
    variants: list[Accuracy] = []
    for variant, group in samples.items():
        before = error(device.roofline, group)
        held_back: list[float] = []
        for outside, inside in folds(len(group), parts, seed):
            held_back += error(fitted(device, [group[i] for i in outside]), [group[i] for i in inside])
        variants.append(Accuracy(variant, len(group), _factors(before), _factors(held_back)))
        plain += before
        after += held_back
    overall = Accuracy("all", len(plain), _factors(plain), _factors(after))
    return Validation(overall, tuple(sorted(variants, key=lambda a: (-a.entries, a.variant))))


def _factors(errors: Sequence[float]) -> tuple[float, float]:
    middle, high = np.quantile(errors, (0.5, 0.9))
    return math.exp(middle), math.exp(high)
