"""Costs of operators and graphs, measured or estimated."""

from eqsat.moved import names_of

__getattr__ = names_of("eqsat.costs.model.model")
