"""Schemas of laws: implied by the declarations of operators, one module for each kind of law."""
