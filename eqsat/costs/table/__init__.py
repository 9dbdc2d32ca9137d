"""Measured costs in a file."""

from eqsat.moved import names_of

__getattr__ = names_of("eqsat.costs.table.table")
