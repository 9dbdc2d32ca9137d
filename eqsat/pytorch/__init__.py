"""PyTorch's doors: `optimize` for modules, and the backend "eqsat" of torch.compile."""
