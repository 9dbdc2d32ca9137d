"""Messages on packages that are not installed."""

import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "eqsat"


def test_pip_lines_can_be_pasted_into_any_shell():
    """Zsh takes brackets without quotes for a pattern of file names."""
    lines = [line for path in PACKAGE.rglob("*.py") for line in path.read_text(encoding="utf-8").splitlines()]
    bare = [line for line in lines if re.search(r"pip install [^'\"]*\w\[", line)]
    assert bare == []
    assert any("pip install 'eqsat[" in line for line in lines)
