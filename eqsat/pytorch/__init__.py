"""PyTorch's doors: `optimize` for modules, the backend "eqsat" of torch.compile, and comprehensions in its graphs."""

from eqsat.language.pytorch.kinds import check_extra

check_extra()

from eqsat.language.pytorch import comprehensions  # noqa: E402, F401  (its operator, which saved programs name)
from eqsat.runtime.c import tuned  # noqa: E402, F401  (its compiler of kernels, which they call)
