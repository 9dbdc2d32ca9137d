"""The operators, one declaration each, grouped by kind; importing this package registers them."""

from eqsat.language.ops import (
    activations,
    einsum,
    elementwise,
    indexing,
    linear,
    movement,
    nn,
    nn_attention,
    pool,
    quantised,
    recurrent,
    reduce,
    selecting,
    sequences,
    terms,
    vision,
)

__all__ = [
    "activations",
    "einsum",
    "elementwise",
    "indexing",
    "linear",
    "movement",
    "nn",
    "nn_attention",
    "pool",
    "quantised",
    "recurrent",
    "reduce",
    "selecting",
    "sequences",
    "terms",
    "vision",
]
