"""Kernels of cuBLASLt and cuDNN, and their stand-ins."""
