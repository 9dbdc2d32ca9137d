"""The repository as a clone, and the wheel built from it."""

from pathlib import Path

import pytest

from tests.support import environments as env


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository as `git clone` leaves it: in a folder named eqsat."""
    return env.copied_sources(tmp_path_factory.mktemp("beside") / "eqsat")


@pytest.fixture(scope="session")
def wheel(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return env.build(clone, "wheel", tmp_path_factory.mktemp("wheels"))
