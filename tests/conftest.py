"""Settings of all tests: no property test is judged by how long an example takes; no operator outlives its test."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from eqsat.language import spec as registry

settings.register_profile("eqsat", settings(), deadline=None)
settings.load_profile("eqsat")


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Operators that a test declares are gone after it, so that no other test finds laws of theirs."""
    before = set(registry.OPS)
    yield
    for name in [n for n, one in registry.OPS.items() if n not in before and not one.is_shipped]:
        del registry._SPECS[name]
