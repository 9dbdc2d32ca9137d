"""The operators, one declaration each, grouped by kind; importing this package registers them."""

from eqsat.language.ops import (
    activations,
    einsum,
    elementwise,
    indexing,
    linear,
    movement,
    pool,
    quantised,
    recurrent,
    reduce,
    selecting,
    sequences,
    vision,
)
from eqsat.language.ops import constants as terms
from eqsat.language.ops.nn import attention as nn_attention
from eqsat.language.ops.nn import grouped as nn_grouped
from eqsat.language.ops.nn import normalisation as nn

__all__ = [
    "activations",
    "einsum",
    "elementwise",
    "indexing",
    "linear",
    "movement",
    "nn",
    "nn_attention",
    "nn_grouped",
    "pool",
    "quantised",
    "recurrent",
    "reduce",
    "selecting",
    "sequences",
    "terms",
    "vision",
]
