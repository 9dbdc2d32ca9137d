"""The page on plug-ins is followed with its package installed."""

import re
import tomllib
from pathlib import Path

from tests.support.distributions import install
from tests.support.pages import follow

ROOT = Path(__file__).parents[3]


def test_the_page_works_with_its_package_installed(tmp_path):
    page = (ROOT / "docs" / "plug-ins.md").read_text(encoding="utf-8")
    project = tomllib.loads(re.findall(r"^```toml\n(.*?)^```", page, re.M | re.S)[0])["project"]
    install(tmp_path, project["name"], project["entry-points"])
    shown = []
    follow(ROOT / "docs" / "plug-ins.md", tmp_path, shown.append, fresh=True)
    assert len(shown) == 2
    assert (tmp_path / "faster.onnx").exists()
