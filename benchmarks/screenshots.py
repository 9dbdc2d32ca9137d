"""Draws the pictures of the documentation from runs of real models, in headless Chromium.

`python -m benchmarks.screenshots` writes docs/images/*.png; it needs Chromium (Debian: chromium) and playwright.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

import eqsat
from benchmarks.models import load
from eqsat.explorer.explorer import explore
from eqsat.explorer.page.layout import arrange
from eqsat.explorer.page.page import page
from eqsat.explorer.view.views import ClassView, GraphView, RunView

FOLDER = Path(__file__).parents[1] / "docs" / "images"
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")
WIDTH, HEIGHT = 1160, 660
MOST_BYTES = 200_000
SECONDS = 60.0


@dataclass(frozen=True)
class Shot:
    """A picture: of which run, and the address after # that says what of it."""

    name: str
    model: str
    address: str
    dark: bool = False


def common_factor() -> eqsat.Graph:
    """relu(x z + y z): an e-graph small enough to be seen at one glance."""
    graph = eqsat.Graph("common factor")
    x, y, z = (graph.input(name, (64, 256)) for name in "xyz")
    graph.output("out", eqsat.relu(x * z + y * z))
    return graph.build()


def main() -> int:
    chromium = shutil.which("chromium")
    if chromium is None:
        print("needs Chromium: apt-get install chromium", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    views = {name: run(name) for name in ("squeezenet1_1", "bert_base", "common factor")}
    with tempfile.TemporaryDirectory() as folder, browser(chromium) as pages:
        for name, view in views.items():
            (Path(folder) / f"{name}.html").write_text(page(view), encoding="utf-8")
        for shot in shots(views):
            tab = pages[shot.dark]
            tab.goto(f"{(Path(folder) / f'{shot.model}.html').as_uri()}#{shot.address}")
            take(tab, shot)
    return 0


def shots(views: dict[str, RunView]) -> list[Shot]:
    richest = most_forms(views["squeezenet1_1"], chosen=True)
    blocks = arrange(views["bert_base"].original or GraphView("", (), ())).blocks
    encoder = next(number for number, block in enumerate(blocks) if block.path[-1:] == ("encoder",))
    product = most_forms(views["common factor"], chosen=True)
    return [
        Shot("graphs", "squeezenet1_1", "pane=graphs"),
        Shot(
            "eclass",
            "squeezenet1_1",
            f"pane=graphs&class={richest.eclass}&node={place(views['squeezenet1_1'], richest)}",
        ),
        Shot("folded", "bert_base", f"pane=graphs&block=0.{encoder}"),
        Shot("change", "bert_base", "pane=graphs&change=3"),
        Shot("egraph", "common factor", f"pane=egraph&class={product.eclass}"),
        Shot("changes", "squeezenet1_1", "pane=changes"),
        Shot("growth", "bert_base", "pane=growth"),
        Shot("dark", "squeezenet1_1", "pane=graphs&change=2", dark=True),
    ]


def run(name: str) -> RunView:
    """Grows and optimises a model without measuring: what is seen is a matter of the e-graph."""
    model = common_factor() if name == "common factor" else load(name)
    explorer = explore(model, time_limit=SECONDS)
    explorer.grow()
    explorer.optimize(measure=False)
    return explorer.view()


def most_forms(view: RunView, *, chosen: bool) -> ClassView:
    """Of the classes that the result and the original both compute, that with the most forms."""
    both = [each for each in view.classes if each.values and any(form.chosen for form in each.forms) is chosen]
    return max((each for each in both if not each.constant), key=lambda each: len(each.forms))


def place(view: RunView, of: ClassView) -> str:
    """The node of the result that computes a class, as the page's address names it."""
    assert view.result is not None
    return next(f"1.{i}" for i, node in enumerate(view.result.nodes) if node.eclass == of.eclass)


@contextmanager
def browser(chromium: str) -> Iterator[dict[bool, Page]]:
    """A tab in the light and one in the dark scheme."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        size = {"width": WIDTH, "height": HEIGHT}
        yield {
            dark: started.new_page(viewport=size, color_scheme="dark" if dark else "light") for dark in (False, True)
        }
        started.close()


def take(tab: Page, shot: Shot) -> None:
    """Writes a picture."""
    tab.reload()
    tab.wait_for_selector("body[data-ready]")
    tab.wait_for_timeout(300)  # until what moves has been drawn
    path = FOLDER / f"{shot.name}.png"
    Image.open(io.BytesIO(tab.screenshot())).convert("RGB").save(path, optimize=True)
    size = path.stat().st_size
    print(f"{path.name}: {size / 1000:.0f} kB")
    if size > MOST_BYTES:
        raise SystemExit(f"{path.name} has {size} bytes, more than {MOST_BYTES}")


if __name__ == "__main__":
    sys.exit(main())
