"""Checks of rules: the search for an instance that refutes one, and its shrinking."""
