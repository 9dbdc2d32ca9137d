"""The independent check of a result: changed regions, exactly modulo a prime where that is meaningful, else in float64.

It shares nothing with the rules. An optimiser claims that values of the new graph equal values of the old one; by
induction from the inputs, each claim follows either because the same operator is applied to operands already shown
equal, or because both regions between it and such values agree on fresh random data.
"""

from eqsat.certify.certificate import TOLERANCE, assignments, certify
from eqsat.certify.compare import DRAWS, relative_difference
from eqsat.certify.record import Certificate, CheckedRegion

__all__ = ["DRAWS", "TOLERANCE", "Certificate", "CheckedRegion", "assignments", "certify", "relative_difference"]
