"""Operators of graphs as functions of the language, by the definitions that they have."""
