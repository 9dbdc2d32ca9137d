"""The choice of precisions: scales from data, roundings measured, kernels on integers chosen within an error budget."""
