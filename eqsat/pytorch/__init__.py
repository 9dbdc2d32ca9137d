"""PyTorch's doors: `optimize` for modules, and the backend "eqsat" of torch.compile."""

from eqsat.language.pytorch.kinds import check_extra

check_extra()
