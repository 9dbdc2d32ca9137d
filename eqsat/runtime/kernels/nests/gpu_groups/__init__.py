"""Groups of operators scheduled for a GPU: trees of loops over elements of their values."""
