"""Files that need packages which are not installed are not collected for doctests."""

from importlib.util import find_spec

_TORCH = ["eqsat/pytorch/*", "eqsat/language/pytorch/*", "tests/support/torch_models.py"]
collect_ignore_glob = [] if find_spec("torch") and find_spec("onnxscript") else _TORCH
