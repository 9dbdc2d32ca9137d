"""Ranks that operands have by what an operator is seen to refuse."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.language.declaration import OpSpec
from eqsat.rewrites.proof.opaque.layout import fitting_ranks
from eqsat.rewrites.proof.opaque.recurrent import RANKS, sees_products
from eqsat.rewrites.proof.opaque.signatures import has_ranks_of_form, highest_rank


def own_ranks(declared: OpSpec) -> list[int | None]:
    """The highest ranks of operands that have one of their own; None for others."""
    if sees_products(declared):
        return list(RANKS)
    if declared.form is None or not has_ranks_of_form(declared):
        return []
    own = [None if term.open or not term.indices else term.fixed for term in declared.form.terms]
    return [*own, *(highest_rank(declared, place) for place in range(len(own), declared.max_operands or 0))]


def has_other_rank(declared: OpSpec, place: int, rank: int) -> bool:
    """True if an operator does not take a rank at a place, where it takes but one."""
    own = own_ranks(declared)
    if place >= len(own) or own[place] is None:
        return False
    terms = declared.form.terms if declared.form is not None else ()
    is_added = declared.form is not None and (place >= len(terms) or terms[place].added)
    return rank not in range(own[place] + 1) if is_added else rank != own[place]  # type: ignore[operator]


def possible_ranks(declared: OpSpec, place: int, known: Sequence[int | None], most: int) -> list[int]:
    """The ranks up to one that an operand may have beside those before it."""
    if sees_products(declared):
        return [RANKS[place]] if RANKS[place] <= most else []
    if has_ranks_of_form(declared):
        return fitting_ranks(declared, place, known, most)
    return list(range(most + 1))
