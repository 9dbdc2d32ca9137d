"""Functions of comprehensions, defined by the operators that ship."""
