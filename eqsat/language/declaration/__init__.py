"""Declarations of operators: their fields, index forms, defaults, and the registry."""

from eqsat.language.declaration.registry import op as op
from eqsat.language.declaration.spec import REQUIRED as REQUIRED
from eqsat.language.declaration.spec import InferRule as InferRule
from eqsat.language.declaration.spec import Operands as Operands
from eqsat.language.declaration.spec import OpSpec as OpSpec
from eqsat.language.declaration.spec import Sample as Sample
from eqsat.language.declaration.spec import SampleRule as SampleRule
from eqsat.language.declaration.spec import normal_axis as normal_axis
from eqsat.language.declaration.spec import present as present
from eqsat.language.declaration.spec import refuse_integers as refuse_integers
from eqsat.language.declaration.spec import same_dtype as same_dtype
