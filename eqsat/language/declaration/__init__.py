"""Declarations of operators: their fields, index forms, defaults, and the registry."""
