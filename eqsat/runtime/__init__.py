"""Backends that execute a graph, and the measurement of programs against each other."""
