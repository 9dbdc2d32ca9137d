"""Instances of rules: evidence is of those that a seed gives, so that they stay the same, drawn or listed in order."""

import hashlib
import json
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from eqsat.language.terms.pattern import Bindings
from eqsat.rewrites.instances.instance import Sampler, operands
from eqsat.rewrites.instances.typings import Typings
from eqsat.rewrites.proof.bounded import levels
from eqsat.rewrites.rules.loader import shipped_rules
from eqsat.rewrites.rules.rule import Rule

GOLDEN = Path(__file__).parents[2] / "golden" / "instances.json"
#: The number of instances that are drawn of a rule, and of the choices that are made to list some in order.
DRAWN, CHOICES = 4, 300


def _lines(rule: Rule) -> Iterator[str]:
    """What a seed gives of one rule: drawn instances, the state of chance after them, listed instances."""
    rng = random.Random(rule.text)
    sampler = Sampler(rule, rng=rng)
    for bindings in islice(iter(lambda: sampler.draw(100), None), DRAWN):
        yield _shown(bindings)
    yield repr(rng.getstate())
    typings = Typings(rule, levels(rule)[0], budget=CHOICES)
    yield from (_shown(bindings) for bindings, _ in typings)
    yield f"{typings.tried} {typings.spent}"


def _shown(bindings: Bindings) -> str:
    """Operands in order, with their elements where these are no floats, and attributes."""
    parts = []
    for operand in operands(bindings):
        elements = None if operand.type.dtype.is_float else np.asarray(operand.array).tolist()
        facts = f"{operand.constant} {operand.finite} {operand.limit}"
        parts.append(f"{operand.name}: {operand.type} {facts} {elements}")
    return "; ".join([*parts, *(f"{name} = {value!r}" for name, value in bindings.attrs.items())])


def _digest(rule: Rule) -> str:
    return hashlib.blake2b("\n".join(_lines(rule)).encode(), digest_size=8).hexdigest()


def test_instances_of_rules_stay_those_that_the_rules_were_proved_on() -> None:
    expected = json.loads(GOLDEN.read_text(encoding="utf-8"))
    rules = {rule.name: rule for rule in shipped_rules() if rule.name in expected}
    assert {name: _digest(rule) for name, rule in rules.items()} == expected
