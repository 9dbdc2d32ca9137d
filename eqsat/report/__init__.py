"""The result of a run, and the report of it."""

from eqsat.moved import names_of

__getattr__ = names_of("eqsat.report.report")
