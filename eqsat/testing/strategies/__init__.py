"""Hypothesis strategies: types, elements, graphs, rules and their instances."""
