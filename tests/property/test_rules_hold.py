"""Every shipped rule holds in float64 on instances that its evidence has not seen."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eqsat.rewrites.check import Mismatch, build, numeric_mismatch
from eqsat.rewrites.instance import Sampler
from eqsat.rewrites.loader import shipped_rules

RULES = shipped_rules()


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(rule=st.sampled_from(RULES), seed=st.integers(1, 2**32))
def test_rules_hold_on_fresh_instances(rule, seed: int) -> None:
    bindings = Sampler(rule, seed).draw(tries=200)
    if bindings is None:
        return
    made = build(rule, bindings)
    assert not isinstance(made, Mismatch), f"{rule.name}: {made}"
    assert numeric_mismatch(made) is None, f"{rule.name}: {numeric_mismatch(made)}"
