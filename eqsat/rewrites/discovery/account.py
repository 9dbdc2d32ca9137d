"""The laws that the committed library rests on and the rules it leaves open, as numbers and lists for a report."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from eqsat.rewrites.discovery.library import COUNTS, EVIDENCE, LIBRARY, MISSING, read_counts, read_missing
from eqsat.rewrites.rules.evidence import read_evidence
from eqsat.rewrites.rules.loader import shipped_rules


def account(folder: Path = LIBRARY) -> dict[str, Any]:
    """The counts of each stage, laws by how many rules rest on them, rules without a law, and those written by hand."""
    evidence = read_evidence(folder / EVIDENCE)
    laws = Counter(law for e in evidence.values() for law in e.laws)
    rules = shipped_rules()
    axioms = [r for r in rules if r.origin == "axiom"]
    return {
        "counts": read_counts(folder / COUNTS),
        "library": len(evidence),
        "methods": dict(sorted(Counter(e.entailed or "none" for e in evidence.values()).items())),
        "instances": {
            "symbolic": sum(e.symbolic for e in evidence.values()),
            "numeric": sum(e.numeric for e in evidence.values()),
            "bounded": sum(e.bounded for e in evidence.values()),
            "exhaustive": sum(e.exhaustive for e in evidence.values()),
        },
        "laws_used": dict(sorted(laws.items(), key=lambda item: (-item[1], item[0]))),
        "missing": read_missing(folder / MISSING),
        "by_hand": [{"name": r.name, "text": r.text, "reason": r.reason} for r in axioms],
        "derived": sum(r.origin == "derived" for r in rules),
    }
