"""Spaces, candidates and caches of tuned kernels, drawn at random."""

import json
import tempfile
import warnings
from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat.errors import UsageError
from eqsat.runtime.tuning.candidate import TuningCandidate, value_text
from eqsat.runtime.tuning.config import TunerConfig
from eqsat.runtime.tuning.records import KernelEntry, KernelKey
from eqsat.runtime.tuning.search import GeneticSearch, RandomSearch
from eqsat.runtime.tuning.space import OptionSpace, tile_candidates
from eqsat.runtime.tuning.store import KernelCache

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = scalars | st.lists(scalars, max_size=3).map(tuple)
names = st.text(max_size=3)
candidates = st.dictionaries(names, values, max_size=4).map(TuningCandidate)
choices = st.lists(values, min_size=1, max_size=4, unique_by=value_text).map(tuple)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
keys = st.builds(KernelKey, texts, texts, st.sampled_from(["c", "cuda"]), texts)
seconds = st.floats(min_value=5e-324, max_value=1e300, allow_nan=False)
entries = st.builds(KernelEntry, candidates, seconds, texts)


@st.composite
def spaces(draw):
    """Spaces whose candidates are legal by the checksum of their text: without a structure that a search could use."""
    options = draw(st.dictionaries(names, choices, max_size=4))
    divisor, seed = draw(st.integers(1, 5)), draw(st.integers(0, 3))
    return OptionSpace(options, lambda c: (sum(c.text.encode()) + seed) % divisor == 0)


@given(candidates)
def test_any_candidate_round_trips_through_json(candidate):
    again = TuningCandidate.from_text(candidate.text)
    assert again == candidate and TuningCandidate.from_json(json.loads(json.dumps(dict(candidate)))) == candidate
    assert list(map(value_text, again.values())) == [value_text(candidate[name]) for name in again]


@given(spaces(), st.integers(0, 5))
def test_any_search_proposes_every_legal_candidate_once(space, seed):
    legal = list(space.candidates())
    for kind in (GeneticSearch, RandomSearch):
        search = kind(space, TunerConfig(generations=1000, population=5, elites=1, seed=seed))
        proposed = []
        while batch := search.propose():
            proposed += batch
            for candidate in batch:
                search.tell(candidate, 1.0 + len(candidate.text) if seed else None)
        assert len(proposed) == len(legal) and set(proposed) == set(legal)


@given(spaces(), st.data())
def test_neighbours_and_mutants_are_of_the_space(space, data):
    candidate = space.at(data.draw(st.integers(0, space.size - 1)))
    for other in space.neighbours(candidate):
        assert space.allows(other)
        assert sum(value_text(other[name]) != value_text(candidate[name]) for name in other) == 1
    mutant = space.mutated(candidate, data.draw(st.floats(0, 1)), Random(0))
    assert mutant in set(map(space.at, range(space.size)))


@given(st.integers(1, 3000))
def test_tiles_are_those_of_their_definition(extent):
    powers = {1 << exponent for exponent in range(12) if 1 << exponent <= extent}
    assert tile_candidates(extent) == tuple(sorted(powers | {-(-extent // count) for count in range(1, extent + 1)}))


@given(st.lists(st.tuples(keys, entries), max_size=12))
@settings(max_examples=50)
def test_a_cache_holds_the_fastest_of_what_it_was_given(records):
    expected: dict[KernelKey, KernelEntry] = {}
    with KernelCache(":memory:") as cache, tempfile.TemporaryDirectory() as folder:
        for key, entry in records:
            is_faster = key not in expected or entry.seconds < expected[key].seconds
            assert cache.put(key, entry) == is_faster
            if is_faster:
                expected[key] = entry
        assert cache.entries() == expected and list(cache.entries()) == sorted(expected)
        file = Path(folder) / "kernels.jsonl"
        assert cache.export(file) == len(expected)
        with KernelCache(":memory:") as other:
            assert other.import_(file) == len(expected) and other.entries() == expected


@given(st.data())
@settings(max_examples=40)
def test_an_entry_of_a_damaged_file_is_as_it_was_put_or_missing(data):
    """A run of bytes anywhere is overwritten: in a header, an index, a schema or a row."""
    known = {
        KernelKey(f"kernel {n}", "f32[8]", "c", "x86"): KernelEntry(
            TuningCandidate({"tile": n}), 1.0 + n, "source" * 200
        )
        for n in range(10)
    }
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        path = Path(folder) / "tuning.sqlite3"
        with KernelCache(":memory:") as memory, KernelCache(path) as cache:
            for record in known.items():
                memory.put(*record)
            memory.export(Path(folder) / "kernels.jsonl")
            cache.import_(Path(folder) / "kernels.jsonl")
        content = bytearray(path.read_bytes())
        begin = data.draw(st.integers(0, len(content) - 1) | st.integers(0, 120))
        damage = data.draw(st.binary(min_size=1, max_size=64))
        content[begin : begin + len(damage)] = damage[: len(content) - begin]
        path.write_bytes(content)
        with KernelCache(path) as cache:
            for key, entry in known.items():
                assert cache.get(key) in (entry, None)
                assert cache.put(key, KernelEntry(entry.options, entry.seconds / 2, "faster"))
            assert {key: one.payload for key, one in cache.entries().items()} == dict.fromkeys(known, "faster")


@given(st.binary(max_size=200))
def test_bytes_that_are_no_exported_file_are_a_usage_error(content):
    with tempfile.TemporaryDirectory() as folder, KernelCache(":memory:") as cache:
        path = Path(folder) / "kernels.jsonl"
        path.write_bytes(content)
        try:
            cache.import_(path)
        except UsageError as error:
            assert error.where.startswith(str(path))
        else:
            raise AssertionError("imported")
