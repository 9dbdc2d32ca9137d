"""The collection, one module for each group."""

from benchmarks.expert.case import CASES
from benchmarks.expert.cases import (
    activations,
    attention,
    chains,
    einsums,
    factoring,
    joins,
    matrices,
    norms,
    published,
    recurrences,
    rotary,
    views,
)

#: The modules, whose cases are registered as they are read.
MODULES = (
    *(published, chains, factoring, views, joins, attention, activations),
    *(norms, rotary, matrices, einsums, recurrences),
)

__all__ = ["CASES", "MODULES"]
