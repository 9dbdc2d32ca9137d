"""Kernels of groups: the schedule that each takes, by the operator that the others go before and after."""
