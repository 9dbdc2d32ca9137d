"""Backends that execute a graph."""
