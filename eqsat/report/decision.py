"""The decision among finalists: the one that is kept, and the reason for which each other is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eqsat.report.finalists import Candidate, Measured
from eqsat.report.parts import Finalist
from eqsat.report.timing.sets import WORTH

#: Prices that differ by less than this share are one price, summed in another order.
_SAME = 1e-9


def kept(candidates: Sequence[Candidate], measured: Measured | None) -> tuple[Candidate, str]:
    """The candidate to return, and why: the original unless another is measured, or at least costed, to be better.

    One that is measured has to save two hundredths with 95 % confidence.

    An original that breaks a limit is returned only where nothing else is left.
    """
    original, others = candidates[0], candidates[1:]
    if not others:
        return original, "no rule made a difference" if original.within else "nothing within the limits was left"
    if not original.within:
        return min(others, key=lambda c: (c.cost.price, c.size)), "it costs least within the limits"
    if measured is None:
        best = min(others, key=lambda c: (c.cost.price, c.size))
        before, after = original.cost.price, best.cost.price
        if after < before * (1 - _SAME):
            return best, "it costs least by the model; it was not measured"
        if after <= before * (1 + _SAME) and best.size < original.size:
            return best, "it has fewer nodes and costs no more by the model; it was not measured"
        return original, "nothing found costs less by the model"
    # Finalists may have been timed at different times, each beside the original.
    for candidate in sorted(
        (c for c in others if c.name not in measured.refused), key=lambda c: measured.ratio(c.name)
    ):
        bound = measured.bound(candidate.name)
        if bound < WORTH:
            ratio = measured.ratio(candidate.name)
            return candidate, f"measured at {ratio:.3f} of the original's time, at most {bound:.3f} (95 %)"
    if any(measured.bound(c.name) < 1 for c in others if c.name not in measured.refused):
        return original, "what was found saves less than two hundredths of the time"
    return original, "no finalist was measured to be faster with 95 % confidence"


def finalists_of(
    candidates: Sequence[Candidate],
    best: Candidate,
    because: str,
    measured: Measured | None,
    refused: Mapping[str, str],
    decided: bool,
) -> list[Finalist]:
    """All finalists as a report lists them; `decided` says that their times, where there are any, decided.

    `refused` are the reasons of those that may not stand for the original.
    """
    rows = []
    for one in candidates:
        timed = measured if measured is not None and one.name in measured.timings.samples else None
        compared = timed if one is not candidates[0] else None
        if one is best:
            why = because
        elif one.name in refused:
            why = refused[one.name]
        else:
            why = _why_not(one, best, candidates[0], measured if decided else None) or because
        rows.append(
            Finalist(
                name=one.name,
                nodes=one.size,
                predicted=one.cost.price,
                measured=None if timed is None else timed.median(one.name),
                ratio=None if compared is None else compared.ratio(one.name),
                bound=None if compared is None else compared.bound(one.name),
                kept=one is best,
                why=why,
            )
        )
    return rows


def _why_not(one: Candidate, best: Candidate, original: Candidate, times: Measured | None) -> str:
    """The reason for which a finalist that may stand for the original was not kept; "" where neither cost nor time is.

    By its time where `times` decided, else by its cost.
    """
    if not one.within:
        return "it breaks a limit"
    if times is None or not original.within:
        dearer = one.cost.price >= best.cost.price * (1 - _SAME)
        return f"it costs no less than {best.name} by the model" if dearer else ""
    if one is original:
        return f"{best.name} is faster with 95 % confidence"
    if (bound := times.bound(one.name)) < 1:
        if best is not original:
            return f"{best.name} is faster in the median"
        return "it saves less than two hundredths of the time" if bound >= WORTH else ""
    if times.ratio(one.name) < 1:
        return "it is faster in the median, but not with 95 % confidence"
    return "it was measured to be no faster than the original"
