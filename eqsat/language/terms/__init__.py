"""Types, dims, constants, graphs, plans and patterns: the data that everything else works on."""

from eqsat.language.terms.constant import Array as Array
from eqsat.language.terms.constant import Constant as Constant
from eqsat.language.terms.constraint import Constraint as Constraint
from eqsat.language.terms.dims import Dim as Dim
from eqsat.language.terms.dims import Sym as Sym
from eqsat.language.terms.dims import ceildiv as ceildiv
from eqsat.language.terms.dims import dim_max as dim_max
from eqsat.language.terms.dims import evaluate as evaluate
from eqsat.language.terms.dims import exact_quotient as exact_quotient
from eqsat.language.terms.dims import floordiv as floordiv
from eqsat.language.terms.dims import product as product
from eqsat.language.terms.graph import OPAQUE as OPAQUE
from eqsat.language.terms.graph import Attrs as Attrs
from eqsat.language.terms.graph import Graph as Graph
from eqsat.language.terms.graph import Node as Node
from eqsat.language.terms.names import Names as Names
from eqsat.language.terms.types import UNKNOWN as UNKNOWN
from eqsat.language.terms.types import DType as DType
from eqsat.language.terms.types import Shape as Shape
from eqsat.language.terms.types import TensorType as TensorType
from eqsat.language.terms.types import ValueType as ValueType
from eqsat.language.terms.types import broadcast_shapes as broadcast_shapes
