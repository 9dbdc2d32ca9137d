"""Evidence of rules, as `eqsat rules verify` makes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import replace
from typing import TYPE_CHECKING

from eqsat.rewrites.rules.evidence import SHIPPED, Evidence, basis_hash, is_current, write_evidence
from eqsat.rewrites.rules.loader import LIBRARY
from eqsat.rewrites.rules.loader import laws as shipped_laws
from eqsat.rewrites.rules.rule import Rule

if TYPE_CHECKING:
    from eqsat.rewrites.proof.check import Effort
    from eqsat.rewrites.proof.entail import Entailment


def verify(
    rules: Sequence[Rule],
    known: Mapping[str, Evidence] | None = None,
    *,
    exhaustive: bool = False,
    budget: int | None = None,
    executor: Executor | None = None,
) -> Iterator[Evidence]:
    """Evidence for each rule, as it is found; a current record in `known` that suffices is taken over as it is.

    An executor checks several rules at once, in its own order. `exhaustive` runs every instance of the bounded grid,
    however many there are, also of rules whose record is current but not exhaustive; a `budget` is how many choices of
    it are gone through.
    """
    by_name = {rule.name: rule for rule in rules}
    #: Rules, with the record of those of which only the proof for every size is missing.
    pending: list[tuple[Rule, Evidence | None]] = []
    for rule in rules:
        record = (known or {}).get(rule.name)
        if (
            record is not None
            and is_current(rule, record, by_name)
            and (
                record.exhaustive
                if exhaustive
                else record.bounded or record.side  # older ones have no bounded instances
            )
        ):
            if record.ranks >= 0 or record.open:
                yield record
            else:
                pending.append((rule, record))
        else:
            pending.append((rule, None))
    if executor is None:
        yield from (_checked(rule, record, exhaustive, budget) for rule, record in pending)
        return
    futures = [executor.submit(_checked, rule, record, exhaustive, budget) for rule, record in pending]
    for future in as_completed(futures):
        yield future.result()


def _checked(rule: Rule, record: Evidence | None, exhaustive: bool, budget: int | None) -> Evidence:
    """The checks on instances; for a rule of the library, which is no law, how laws entail it as well.

    A record is taken over as it is, with a proof for every size, if there is one.
    """
    from eqsat.rewrites.proof.check import EXHAUSTIVE, THOROUGH, check
    from eqsat.rewrites.proof.sizes import prove_sizes

    if record is not None:
        sizes = prove_sizes(rule)
        return replace(record, ranks=sizes.rank, every_rank=sizes.every_rank, open=sizes.open)
    effort = EXHAUSTIVE if exhaustive else THOROUGH
    effort = effort if budget is None else replace(effort, bounded=budget)
    return verify_rule(rule, shipped_laws(), effort) if rule.origin == "library" else check(rule, effort)


def verify_rule(
    rule: Rule,
    laws: Sequence[Rule],
    effort: Effort | None = None,
    known: Evidence | None = None,
    proof: Entailment | None = None,
) -> Evidence:
    """Both kinds of evidence: the checks on instances and, where these hold, whether laws entail the rule.

    A `known` record of the checks is taken over where it is current, and so is a `proof` of this rule from these laws.
    """
    from eqsat.rewrites.proof.check import THOROUGH, check
    from eqsat.rewrites.proof.entail import entail

    checks = None if known is None else replace(known, entailed="", laws=(), chain=(), missing="", basis="")
    evidence = checks if checks is not None and is_current(rule, checks) else check(rule, effort or THOROUGH)
    if evidence.verdict != "proved":
        return evidence
    entailment = entail(rule, laws) if proof is None else proof
    if entailment.verdict != "proved":
        return replace(evidence, missing=entailment.missing)
    basis = basis_hash(entailment.laws, {law.name: law for law in laws})
    return replace(evidence, entailed=entailment.method, laws=entailment.laws, chain=entailment.chain, basis=basis)


def write_shipped(rules: Sequence[Rule], records: Mapping[str, Evidence]) -> None:
    """Write the evidence of shipped rules: the library's beside it, that of all others beside the axioms."""
    for path, library in ((SHIPPED, False), (LIBRARY / "evidence.jsonl", True)):
        group = [records[r.name] for r in rules if (r.origin == "library") == library and r.name in records]
        if group:
            write_evidence(group, path)
