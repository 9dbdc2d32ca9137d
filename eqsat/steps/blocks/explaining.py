"""The changes of a finalist whose blocks stand for others, in all the places where they were made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from eqsat.report.changes import elsewhere
from eqsat.report.explanation import STATES, Change, Explanation
from eqsat.report.finalists import Candidate


def explained_whole(explanation: Explanation, original: Candidate, best: Candidate) -> Explanation:
    """The explanation of the patterns of two finalists as one of the finalists.

    A change in a block that stands for others is made in those as well; pairs of equal terms, and gaps, are its own.
    """
    if original.pattern is None or best.pattern is None or best.assembled is None:
        return explanation  # of an original that is kept, nothing changed
    changes = [
        _everywhere(change, original.pattern.copies, best.pattern.copies)
        for change in explanation.changes
        if change.rules != (STATES,)
    ]
    states = elsewhere(original, best, changes)
    return replace(explanation, changes=(*changes, *states))


def _everywhere(change: Change, old: Sequence[Mapping[str, str]], new: Sequence[Mapping[str, str]]) -> Change:
    """A change in all its places; it saves in each what it does in the others."""
    replaced = _with_copies(change.replaced, old)
    factor = len(replaced) / len(change.replaced) if change.replaced else 1.0
    return replace(
        change,
        values=_with_copies(change.values, old),
        replaced=replaced,
        made=_with_copies(change.made, new),
        places=round(change.places * factor),
        nodes=round(change.nodes * factor),
        predicted=_times(change.predicted, factor),
        measured=_times(change.measured, factor),
        spread=_times(change.spread, factor),
    )


def _with_copies(values: Sequence[str], copies: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """Values, then those that they stand for."""
    return (*values, *(copy[value] for copy in copies for value in values if value in copy))


def _times(seconds: float | None, factor: float) -> float | None:
    return None if seconds is None else seconds * factor
