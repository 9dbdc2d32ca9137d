"""The theory of views: reshapes, transposes, slices, expands and constant gathers as one strided map of indices."""
