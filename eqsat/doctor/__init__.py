"""Examination of a machine: what of it runs programs on a GPU, step by step, each in a process of its own."""
