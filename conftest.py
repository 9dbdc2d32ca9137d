"""Files that need packages which are not installed are not collected for doctests; no result of an earlier run is found
again, nor kept, unless a test names a folder for results; no operator outlives the test or doctest that declares it."""

import os
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from eqsat.language.declaration import registry

os.environ["EQSAT_RESULTS"] = ""

#: A second conftest.py below `tests` would be a module of the same name as the first.
pytest_plugins = ["tests.support.explorer_pages"]

_TORCH = ["eqsat/pytorch/*", "eqsat/language/pytorch/*", "tests/support/torch_models.py"]
collect_ignore_glob = [] if find_spec("torch") and find_spec("onnxscript") else _TORCH


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Operators that a test or doctest declares are gone after it: they have laws, and no result is kept beside one."""
    before = set(registry.OPS)
    yield
    for name in [n for n, one in registry.OPS.items() if n not in before and not one.is_shipped]:
        registry.forget(name)
