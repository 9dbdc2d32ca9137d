"""What is priced: kernels, their keys, and how much work they do."""
