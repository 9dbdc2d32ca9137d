"""The corpus of comprehensions: all programs that compute, and all that are refused."""

from tests.support.comprehensions import (
    programs_contractions,
    programs_networks,
    programs_reductions,
    programs_refused,
    programs_refused_late,
    programs_subscripts,
    programs_types,
    programs_windows,
)

RIGHT = (
    *programs_contractions.PROGRAMS,
    *programs_reductions.PROGRAMS,
    *programs_windows.PROGRAMS,
    *programs_types.PROGRAMS,
    *programs_subscripts.PROGRAMS,
    *programs_networks.PROGRAMS,
)
WRONG = (*programs_refused.PROGRAMS, *programs_refused_late.PROGRAMS)
