"""Conditions and attributes of rules: expressions, and the functions that they call."""
