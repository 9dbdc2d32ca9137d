"""The collection, one module for each group."""

from benchmarks.expert.case import CASES
from benchmarks.expert.cases import (
    activations,
    attention,
    chains,
    einsums,
    factoring,
    matrices,
    norms,
    published,
    recurrences,
    rotary,
    views,
)

#: The modules, whose cases are registered as they are read.
MODULES = (
    *(published, chains, factoring, views, attention, activations),
    *(norms, rotary, matrices, einsums, recurrences),
)

__all__ = ["CASES", "MODULES"]
