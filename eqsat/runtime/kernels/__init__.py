"""Generated kernels: groups of operators as C, for a GPU or the processor."""
