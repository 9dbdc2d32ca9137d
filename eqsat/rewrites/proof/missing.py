"""The equation that a proof lacks: the smallest one that would let its two sides meet."""

from __future__ import annotations

from eqsat.rewrites.proof.search import Search


def missing_law(search: Search) -> str:
    """An equation in rule syntax between two terms, one reached from each side, that would close the proof."""
    return ""
