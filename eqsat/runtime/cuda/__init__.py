"""Plans as CUDA kernels: code generation, memory, library calls, and the CuPy backend that runs them."""
