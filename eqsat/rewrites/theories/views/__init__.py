"""The theory of views: reshapes, transposes, slices, expands, pads, joins and constant gathers as one map."""
