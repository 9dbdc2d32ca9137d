"""Amounts with units, and what is said about those that are none."""

import math

import pytest

from eqsat.costs.model.amounts import UNITS, amount
from eqsat.errors import UsageError


@pytest.mark.parametrize(
    ("term", "given", "expected"),
    [
        ("peak_memory", "8 GB", 8e9),
        ("peak_memory", "512 MiB", 512 * 1024**2),
        ("weight_memory", "1.5KiB", 1536.0),
        ("bytes", "12 B", 12.0),
        ("bytes", " 3 TB ", 3e12),
        ("bytes", "7e3", 7000.0),
        ("time", "2 ms", 2e-3),
        ("time", "250µs", 250e-6),
        ("time", "250us", 250e-6),
        ("time", 3, 3.0),
        ("flops", "2.5 G", 2.5e9),
        ("flops", "1e9", 1e9),
        ("launches", "40", 40.0),
        ("error", ".01", 0.01),
        ("error", math.inf, math.inf),
        ("launches", 0, 0.0),
    ],
)
def test_amounts_in_their_units(term: str, given: float | str, expected: float) -> None:
    assert math.isclose(amount(term, given), expected, rel_tol=1e-12)


@pytest.mark.parametrize(
    ("term", "given", "said"),
    [
        ("speed", 1, "no term 'speed'"),
        ("peak_memory", "8 gb", "peak_memory='8 gb' has the unit 'gb'"),
        ("time", "2 minutes", "time='2 minutes' has the unit 'minutes'"),
        ("launches", "4 ms", "launches='4 ms' has the unit 'ms'"),
        ("time", "fast", "time='fast' is no amount"),
        ("time", "-1 s", "time='-1 s' is no amount"),
        ("time", "", "time='' is no amount"),
        ("time", -1.0, "time=-1.0"),
        ("time", math.nan, "time=nan"),
        ("time", True, "time=True"),
        ("time", None, "time=None"),
        ("bytes", "1e999", "bytes='1e999' is infinite"),
    ],
)
def test_what_is_no_amount_is_said(term: str, given: float | str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        amount(term, given)
    assert error.value.what == said
    assert error.value.expected


def test_a_unit_in_another_case_is_suggested() -> None:
    with pytest.raises(UsageError) as error:
        amount("peak_memory", "8gb")
    assert error.value.expected == "one of B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"
    assert error.value.remedy == "write 8 GB"


def test_every_term_of_a_cost_has_units() -> None:
    assert set(UNITS) == {"time", "flops", "bytes", "launches", "weight_memory", "peak_memory", "error"}
