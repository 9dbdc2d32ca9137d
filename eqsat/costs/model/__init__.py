"""Costs of operators and graphs, measured or estimated."""
