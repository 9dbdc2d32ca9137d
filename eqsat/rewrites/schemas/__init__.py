"""Schemas of laws: what an operator's declaration implies, one module for each kind of law."""
