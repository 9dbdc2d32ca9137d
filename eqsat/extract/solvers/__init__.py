"""Solvers without limits: greedy, exact, and the search that is their baseline."""
