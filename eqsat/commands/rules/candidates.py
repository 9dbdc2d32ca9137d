"""`eqsat rules verify CANDIDATES.jsonl`: candidates of the generator into verified rules."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from eqsat.commands.display import stages
from eqsat.commands.output import console
from eqsat.commands.rules.batch import workers
from eqsat.commands.targets import check_target
from eqsat.errors import UsageError
from eqsat.report.units import count
from eqsat.system.files import write_text


def verify_candidates(sources: tuple[Path, ...], target: Path | None, everything: bool, alone: bool, jobs: int) -> None:
    """Verify the candidates of files and write the outcome of each; UsageError without a target."""
    from eqsat.rewrites.discovery.equations.candidate import read_candidates, verified_rules, written_outcomes
    from eqsat.rewrites.discovery.journal import Journal, subject_of
    from eqsat.rewrites.discovery.verification import verify_candidates as verify_all
    from eqsat.rewrites.rules.loader import laws

    if target is None:
        raise UsageError(
            "verified candidates have no file to go to",
            where=str(sources[0]),
            expected="-o and the file to write",
            remedy=f"eqsat rules verify {sources[0]} -o verified.jsonl",
        )
    check_target(target, sources)
    candidates = [c for path in sources for c in read_candidates(path)]
    known = laws()
    subject = subject_of(
        [str(everything), str(alone), *(c.text for c in candidates), *(f"{r.name}: {r.text}" for r in known)]
    )
    with (
        Journal(target.with_name(f"{target.name}.partial"), subject) as journal,
        workers(jobs) as executor,
        stages() as follow,
    ):
        found_out = verify_all(
            candidates,
            known,
            known=() if alone else known,
            everything=everything,
            executor=executor,
            journal=journal,
            progress=follow,
        )
        outcomes = list(found_out)
        write_text(target, written_outcomes(outcomes))
    statuses = Counter(o.status for o in outcomes)
    out = console()
    out.print(f"{count(len(outcomes), 'candidate')}: " + ", ".join(f"{n} {s}" for s, n in sorted(statuses.items())))
    out.print(f"{count(len(verified_rules(outcomes)), 'rule')} proved")
