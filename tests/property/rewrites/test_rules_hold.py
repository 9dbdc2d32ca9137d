"""Every shipped rule holds on instances that Hypothesis draws, which its evidence has not seen."""

import pytest

from eqsat.rewrites.rules.loader import shipped_rules
from eqsat.testing import check_rewrite

RULES = shipped_rules()
#: Rules by the first letters of their names, so that a report says where a fault is without a test a rule.
GROUPS = sorted({rule.name[:2] for rule in RULES})


@pytest.mark.parametrize("group", GROUPS)
def test_rules_hold_on_fresh_instances(group: str) -> None:
    for rule in RULES:
        if rule.name.startswith(group):
            assert check_rewrite(rule, max_examples=4, seed=1, prove=False).checked[0].instances
