"""The operators, one declaration each, grouped by kind, and the registry of all: importing this package fills it."""

from eqsat.language.declaration import op
from eqsat.language.declaration.registry import OPS, spec

# The order in which operators are declared is that of rules that derive from them.
# isort: split
from eqsat.language.ops import elementwise

# isort: split
from eqsat.language.ops import activations, einsum, linear

# isort: split
from eqsat.language.ops import movement

# isort: split
from eqsat.language.ops import cutting

# isort: split
from eqsat.language.ops import indexing, pool, quantised, recurrent, reduce, selecting, sequences, vision

# isort: split
from eqsat.language.ops import constants as terms
from eqsat.language.ops.nn import attention as nn_attention
from eqsat.language.ops.nn import grouped as nn_grouped
from eqsat.language.ops.nn import normalisation as nn

__all__ = [
    "OPS",
    "activations",
    "cutting",
    "einsum",
    "elementwise",
    "indexing",
    "linear",
    "movement",
    "nn",
    "nn_attention",
    "nn_grouped",
    "op",
    "pool",
    "quantised",
    "recurrent",
    "reduce",
    "selecting",
    "sequences",
    "spec",
    "terms",
    "vision",
]
