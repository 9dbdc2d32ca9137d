"""A headless Chromium for tests of pages, and the texts that a page shows, as they are laid out."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
#: Pixels by which boxes of texts may meet: they hold the room above and below letters.
TOUCHING = 1.5

#: Each visible text inside an element, line by line: the number of the text, the box of the line on the screen without
#: the parts that are scrolled away, its size on the screen, whether a part of it is cut off where nothing in it can
#: be scrolled, and whether it is drawn.
_TEXTS = """(within) => {
  const lines = [];
  let number = 0;
  const root = document.querySelector(within);
  const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    const holder = node.parentElement;
    const seen = holder.checkVisibility({ visibilityProperty: true, opacityProperty: true });
    const folded = holder.tagName === "DETAILS" && !holder.open;
    if (!node.data.trim() || folded || !seen) continue;
    number += 1;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const rectangle of range.getClientRects()) {
      const whole = { left: rectangle.left, top: rectangle.top, right: rectangle.right, bottom: rectangle.bottom };
      const line = { ...whole, cut: false };
      for (let outer = holder; outer && outer !== root.parentElement; outer = outer.parentElement) {
        const { overflowX, overflowY } = getComputedStyle(outer);
        const drawing = outer.tagName === "svg";
        if (overflowX === "visible" && overflowY === "visible" && !drawing) continue;
        const frame = outer.getBoundingClientRect();
        const before = { ...line };
        line.left = Math.max(line.left, frame.left);
        line.top = Math.max(line.top, frame.top);
        line.right = Math.min(line.right, frame.right);
        line.bottom = Math.min(line.bottom, frame.bottom);
        const narrower = line.right - line.left < before.right - before.left - 1;
        const lower = line.bottom - line.top < before.bottom - before.top - 1;
        if ((narrower || lower) && !drawing && !/auto|scroll/.test(overflowX + overflowY)) line.cut = true;
      }
      const gone = line.right - line.left < 1 || line.bottom - line.top < 1;
      if (gone && !line.cut) continue;
      line.cut ||= line.left < -1 || line.right > innerWidth + 1;
      const matrix = holder.getScreenCTM?.();
      const scale = matrix ? Math.hypot(matrix.a, matrix.b) : 1;
      const size = parseFloat(getComputedStyle(holder).fontSize) * scale;
      lines.push({ ...line, number, text: node.data.trim(), size, drawn: Boolean(matrix) });
    }
  }
  return lines;
}"""


@dataclass(frozen=True)
class ShownText:
    """A line of text on the screen: its box and its size in pixels."""

    number: int
    text: str
    left: float
    top: float
    right: float
    bottom: float
    size: float
    cut: bool
    drawn: bool

    def overlaps(self, other: ShownText) -> bool:
        """Whether lines of two texts lie on each other; those of one text are as close as its line height."""
        if self.number == other.number:
            return False
        across = min(self.right, other.right) - max(self.left, other.left)
        down = min(self.bottom, other.bottom) - max(self.top, other.top)
        return across > TOUCHING and down > TOUCHING


def shown_texts(tab: Any, within: str = "body") -> list[ShownText]:
    """Each line of text that a tab or a frame shows."""
    return [ShownText(**line) for line in tab.evaluate(_TEXTS, within)]


def overlapping(lines: list[ShownText]) -> list[tuple[str, str]]:
    """The pairs of lines that lie on each other."""
    return [(a.text, b.text) for at, a in enumerate(lines) for b in lines[at + 1 :] if a.overlaps(b)]


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; a test without one is skipped."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium (Debian's package chromium)")
    from playwright import sync_api as playwright

    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield running
        running.close()
