"""Every rule runs in some phase, those that rearrange near what is in focus, and growth goes on where it was cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import eqsat
from eqsat.egraph.encode import encode
from eqsat.egraph.matching.match import Match
from eqsat.egraph.saturate import FAR, PHASES, REARRANGE, Saturator
from eqsat.egraph.saturation import Limits
from eqsat.language.ops import OPS
from eqsat.language.terms.pattern import ABSENT
from eqsat.rewrites.rules.loader import load_rules
from eqsat.rewrites.theories.matches import theory_matches
from eqsat.system.deadline import Deadline, check


def saturator(build: Any, **limits: Any) -> Saturator:
    g = eqsat.Graph("grown")
    g.output("y", build(*(g.input(f"x{n}", (8, 16)) for n in range(4))))
    return Saturator(encode(g.build()).egraph, load_rules(), Limits(**limits))


def test_every_loaded_rule_has_a_phase_that_runs() -> None:
    grown = saturator(lambda a, b, c, d: a + b)
    left_out = [rule.name for rule in load_rules() if rule.phase not in (*PHASES, REARRANGE)]
    assert left_out == []
    run = [rule for phase in (*PHASES, REARRANGE) for rule in grown.rules.applicable(phase, {*OPS, ABSENT.op})]
    assert len(run) == len(load_rules())


def test_rules_that_rearrange_run_near_what_is_in_focus_alone() -> None:
    rearranging = {rule.name for rule in load_rules() if rule.phase == REARRANGE}
    grown = saturator(lambda a, b, c, d: eqsat.relu((a + b) + (c + d)) + eqsat.tanh((a - b) - (c - d)))
    assert rearranging.isdisjoint(grown.run().fired)
    tanh = next(n for n, node in enumerate(grown.egraph.nodes) if node.op == "tanh")
    (difference,) = grown.egraph.nodes[tanh].operands
    before = len(grown.egraph.eclass(difference).members)
    added = next(k for n in grown.egraph.nodes if n.op == "relu" for k in n.operands)
    untouched = len(grown.egraph.eclass(added).members)
    grown.focus([difference])
    fired = rearranging.intersection(grown.run().fired)
    assert fired >= {"sub-of-sub"}
    assert len(grown.egraph.eclass(difference).members) > before
    assert len(grown.egraph.eclass(added).members) == untouched


def test_what_was_too_far_is_applied_where_the_radius_is_extended() -> None:
    def build(a: Any, b: Any, c: Any, d: Any) -> Any:
        return ((a * 2.0 + 1.0) * 3.0 + b) * 0.5 + c * d

    near, far = (saturator(build, radius=radius) for radius in (1, 4))
    far.run()
    assert near.run().stopped_by == "radius_limit"
    assert any(why == FAR for _, why in near.report.refused)
    size = near.egraph.size()[0]
    near.extend(4)
    near.run()
    assert size < near.egraph.size()[0] >= far.egraph.size()[0]


@pytest.mark.parametrize("rules", [None, ()])
def test_theories_say_nothing_where_rules_do_not_regroup(rules: Any) -> None:
    grown = saturator(lambda a, b, c, d: a * b + a * c + a * d)
    chosen = range(len(grown.egraph.nodes))
    used = load_rules() if rules is None else rules
    matches = list(theory_matches(grown.egraph, chosen, used))
    assert bool(matches) is (rules is None)
    grown.bring(iter(matches))
    root = next(n for n in reversed(chosen) if grown.egraph.nodes[n].op == "add")
    made = [grown.egraph.nodes[n].op for n in grown.egraph.eclass(root).members]
    assert ("mul" in made) is (rules is None)


def test_matches_that_outlast_the_deadline_leave_what_they_made_before() -> None:
    """The end comes while a theory looks for its next match, and what was made is written into the e-graph even so."""
    grown = saturator(lambda a, b, c, d: a * b + a * c + a * d)
    before = len(grown.egraph.nodes)
    matches = list(theory_matches(grown.egraph, range(before), load_rules()))

    def found() -> Iterator[Match]:
        yield from matches
        check()

    grown.deadline = Deadline(steps=0)
    whole = Deadline(steps=1_000_000)
    with whole:
        assert grown.bring(iter(matches)).stopped == "step_limit"
        grown.deadline = Deadline(steps=len(matches) + 1)
        step = grown.bring(found())
        assert (step.changed, step.stopped) == (True, "step_limit")
        grown.deadline = whole
        assert grown.run().stopped_by in {"saturated", "radius_limit"}
    assert len(grown.egraph.nodes) > before
