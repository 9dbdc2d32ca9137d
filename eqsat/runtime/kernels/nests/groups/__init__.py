"""Groups of operators as computations: their nodes as statements over boxes of indices."""
