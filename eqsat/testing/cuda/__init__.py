"""Programs for a GPU, run on the processor: kernels compiled as C++ behind a shim, libraries by NumPy."""
