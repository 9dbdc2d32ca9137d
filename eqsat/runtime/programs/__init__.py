"""Plans as programs: launches of kernels over buffers that share one arena, whatever runs them."""
