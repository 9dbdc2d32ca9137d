"""Templates of kernels, by the operator that the others of a group go before and after."""
