"""Tables of several machines: merging in any order, any number of times, and leaving a machine as text."""

from hypothesis import given
from hypothesis import strategies as st

from eqsat.costs.table.entry import Entry, TableRecord, preferred
from eqsat.costs.table.environment import Environment
from eqsat.costs.table.lines import read_records, write_records
from eqsat.costs.table.table import CostTable

TIMES = st.lists(st.floats(0, 1e3, allow_subnormal=True), min_size=3, max_size=3).map(sorted)
ENTRIES = st.builds(
    lambda times, samples, plan: Entry(times[1], times[0], times[2], samples, plan),
    TIMES,
    st.integers(1, 3) | st.integers(1, (1 << 63) - 1),
    st.sampled_from(["", "tile 64"]) | st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
)
ENVIRONMENTS = st.builds(
    Environment, st.just("onnxruntime-cpu"), st.sampled_from(["one", "zwei\n2", "三"]), st.just("r"), st.integers(1, 2)
)
KEYS = st.integers(1, 4).map("relu {{}} float32[{}]".format)
#: A table: one entry for each place.
TABLES = st.lists(
    st.builds(TableRecord, ENVIRONMENTS, KEYS, ENTRIES), max_size=6, unique_by=lambda r: (r.environment, r.key)
)


def merged(*tables):
    with CostTable(":memory:", shipped=False) as whole:
        for table in tables:
            whole.merge(table)
        return sorted(whole.records(), key=lambda r: (r.environment.text, r.key))


@given(ENTRIES, ENTRIES, ENTRIES)
def test_which_entry_stays_is_idempotent_commutative_and_associative(a, b, c):
    assert preferred(a, a) == a
    assert preferred(a, b) == preferred(b, a)
    assert preferred(a, preferred(b, c)) == preferred(preferred(a, b), c)
    assert preferred(a, b).samples == max(a.samples, b.samples)


@given(TABLES, TABLES, TABLES)
def test_tables_merge_in_any_order_and_any_number_of_times(a, b, c):
    whole = merged(a, b, c)
    assert whole == merged(c, a, b) == merged(b, a, c, a, b) == merged([*a, *b, *c])
    assert {(r.environment, r.key) for r in whole} == {(r.environment, r.key) for r in (*a, *b, *c)}


@given(TABLES, TABLES)
def test_what_merging_reports_is_what_it_did(a, b):
    with CostTable(":memory:", shipped=False) as whole:
        assert whole.merge(a).new == len(a)
        before = set(whole.records())
        did = whole.merge(b)
        after = set(whole.records())
    assert did.new + did.replaced + did.kept == len(b)
    assert len(after) == len(before) + did.new
    assert len(after - before) == did.new + did.replaced


@given(TABLES)
def test_a_table_comes_back_from_text_as_it_was(table):
    text = write_records(table)
    read = list(read_records(text, "table.jsonl"))
    assert sorted(read, key=lambda r: (r.environment.text, r.key)) == read
    assert {*read} == {*table}
    assert write_records(read) == text
