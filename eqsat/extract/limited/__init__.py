"""Solvers within limits, and Pareto fronts."""
