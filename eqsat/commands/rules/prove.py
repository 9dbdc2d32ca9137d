"""`eqsat rules prove`: proofs of equations from a set of rules."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eqsat.commands.arguments import import_option
from eqsat.commands.display import followed
from eqsat.commands.output import JSON_FILE, STDOUT, console, output_options, write_json
from eqsat.commands.targets import check_target
from eqsat.errors import RuleError, UnsoundRuleError
from eqsat.report.units import count

if TYPE_CHECKING:
    from eqsat.egraph.saturation import Limits
    from eqsat.rewrites.proof.prove import Proof
    from eqsat.rewrites.rules.parser import FaultyRule
    from eqsat.rewrites.rules.rule import Origin, Rule

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("file", metavar="FILE", type=_FILE)
@click.option("--rules", "given", type=_FILE, multiple=True, help="Prove with these rules. [the shipped ones]")
@click.option("--time-limit", type=click.FloatRange(min=0.0, min_open=True), help="Seconds for one equation. [60]")
@click.option("--json", "target", type=JSON_FILE, help="Write the proofs as JSON; - prints it.")
@import_option
@output_options
def prove(file: Path, given: tuple[Path, ...], time_limit: float | None, target: Path | None) -> None:
    """Prove the equations of FILE, in the syntax of rules, from rules.

    Says of each: proved, with the chain of rules; refuted, with a counterexample; or undecided, with the limit that was
    met, or the condition that no instance meets. A line that is no equation is malformed, and those after it are judged
    all the same. Fails unless every equation is proved.
    """
    from eqsat.rewrites.proof.prove import LIMITS
    from eqsat.rewrites.rules.loader import load_rules
    from eqsat.rewrites.rules.parser import parse_each, text_of

    equations = parse_each(text_of(file), str(file), origin="asked")
    rules = [r for path in given for r in read(path)] if given else list(load_rules())
    if target not in (None, STDOUT):
        check_target(target, ())
    limits = LIMITS if time_limit is None else replace(LIMITS, seconds=time_limit)
    out = console(target)
    proofs: list[Proof] = []
    try:
        for equation in followed(equations, "proving", len(equations)):
            proofs.append(judged(equation, rules, limits))
            for line in describe(proofs[-1]):
                out.print(line, soft_wrap=True)
    finally:
        if target is not None:
            write_json(target, json.dumps([asdict(p) for p in proofs], ensure_ascii=False, indent=1) + "\n")
    counts = Counter(p.verdict for p in proofs)
    out.print(count(len(proofs), "equation") + ": " + ", ".join(f"{n} {verdict}" for verdict, n in counts.items()))
    open_ = [p.name or p.where for p in proofs if p.verdict != "proved"]
    if open_:
        raise UnsoundRuleError(
            f"{count(len(open_), 'equation')} not proved: {', '.join(open_)}", expected="equations that the rules prove"
        )


def judged(equation: Rule | FaultyRule, rules: Sequence[Rule], limits: Limits) -> Proof:
    """The proof of an equation; malformed where a line is none, or no instance of it can be drawn."""
    from eqsat.rewrites.proof.prove import Proof, prove
    from eqsat.rewrites.rules.rule import Rule

    if isinstance(equation, Rule):
        try:
            proof = prove(equation, rules, limits)
            return replace(proof, where=equation.where, swapped=equation.swapped, implied=equation.implied)
        except UnsoundRuleError:  # by the rules that it is proved from
            raise
        except RuleError as error:
            fault = error.at(equation.where)
    else:
        fault = equation.error
    parts = {"what": fault.what, "where": fault.where, "expected": fault.expected, "remedy": fault.remedy}
    return Proof(equation.name, "malformed", detail=str(fault), where=fault.where, error=parts)


def describe(proof: Proof) -> list[str]:
    """A proof as lines of text."""
    from eqsat.rewrites.rules.evidence import sizes_proved

    lines = [f"{proof.verdict:<9} {proof.name}"]
    if proof.verdict == "malformed":
        first, *more = proof.detail.splitlines()
        return [f"{lines[0]}: {first}" if proof.name else f"{proof.verdict} {first}", *more]
    if proof.verdict == "refuted":
        return [f"{lines[0]}: {proof.counterexample}"]
    if proof.verdict == "undecided":
        return [f"{lines[0]}: {proof.detail}"]
    cases = f", by {proof.cases} cases of which this is one" if proof.cases > 1 else ""
    cases += ", from right to left" if proof.swapped else ""
    cases += f", if {', '.join(proof.implied)}" if proof.implied else ""
    assumed = [f"  seen only on instances: {'; '.join(proof.assumed)}"] if proof.assumed else []
    words = sizes_proved(proof.ranks, proof.every_rank) if proof.ranks >= 0 else "not for every size"
    sizes = f"  sizes: {words}{f' ({proof.open})' if proof.open else ''}"
    head = f"{lines[0]} in {count(proof.instances, 'instance')}{cases}"
    return [head, *(f"  {line}" for line in proof.chain), *assumed, sizes]


def read(path: Path, origin: Origin = "given") -> tuple[Rule, ...]:
    """The rules of a file; RuleError where it is no text."""
    from eqsat.rewrites.rules.parser import parse_file

    return parse_file(path, origin=origin)
