"""Files that need packages which are not installed are not collected for doctests; no result of an earlier run is found
again, nor kept, unless a test names a folder for results."""

import os
from importlib.util import find_spec

os.environ["EQSAT_RESULTS"] = ""

#: A second conftest.py below `tests` would be a module of the same name as the first.
pytest_plugins = ["tests.support.explorer_pages"]

_TORCH = ["eqsat/pytorch/*", "eqsat/language/pytorch/*", "tests/support/torch_models.py"]
collect_ignore_glob = [] if find_spec("torch") and find_spec("onnxscript") else _TORCH
