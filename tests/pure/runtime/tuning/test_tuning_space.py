"""Candidates, spaces of them, and sizes of tiles."""

import json
from collections import Counter
from random import Random

import pytest

from eqsat.errors import UsageError
from eqsat.runtime.tuning.candidate import TuningCandidate
from eqsat.runtime.tuning.config import TunerConfig
from eqsat.runtime.tuning.space import OptionSpace, tile_candidates
from tests.support.landscapes import matmul, reduction


def test_a_candidate_is_equal_to_one_with_the_same_values_in_another_order():
    one, other = TuningCandidate({"a": 1, "b": (2, 3)}), TuningCandidate({"b": (2, 3), "a": 1})
    assert one == other and hash(one) == hash(other) and one.text == other.text


def test_a_boolean_an_integer_and_a_float_are_three_values():
    assert len({TuningCandidate({"a": value}) for value in (True, 1, 1.0)}) == 3


def test_a_candidate_is_not_changed_by_the_mapping_it_was_made_from():
    values = {"a": 1}
    candidate = TuningCandidate(values)
    values["a"] = 2
    assert candidate["a"] == 1 and candidate.replaced("a", 3)["a"] == 3 and candidate["a"] == 1
    with pytest.raises(TypeError):
        candidate["a"] = 2


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1], {"b": 1}, (((1,),),), b"a", object()])
def test_a_value_that_is_no_scalar_of_json_is_refused(value):
    with pytest.raises(UsageError, match="option 'a'"):
        TuningCandidate({"a": value})


@pytest.mark.parametrize("text", ["", "[1]", "1", '{"a": NaN}', '{"a": {}}', '{"a": [[[1]]]}', "[" * 100_000])
def test_a_text_that_states_no_options_is_refused(text):
    with pytest.raises(UsageError):
        TuningCandidate.from_text(text)


@pytest.mark.parametrize("options", [{"a": ()}, {"a": "xy"}, {"a": (1, 1)}, {"a": ([1],)}])
def test_a_space_with_values_that_cannot_be_chosen_between_is_refused(options):
    with pytest.raises(UsageError, match="option 'a'"):
        OptionSpace(options)


def test_a_space_lists_every_legal_candidate_once():
    space = OptionSpace({"a": (1, 2, 3), "b": (True, False)}, lambda c: c["b"] or c["a"] > 1)
    listed = [dict(candidate) for candidate in space.candidates()]
    assert space.size == 6
    assert listed == [{"a": a, "b": b} for a in (1, 2, 3) for b in (True, False) if b or a > 1]


def test_a_space_without_options_has_one_candidate():
    space = OptionSpace({})
    assert space.size == 1 and [dict(one) for one in space.candidates()] == [{}]
    assert space.draw(Random(0)) == TuningCandidate({})


def test_random_candidates_are_legal_and_of_all_kinds():
    space = OptionSpace({"a": (1, 2, 3), "b": (1, 2, 3)}, lambda c: c["a"] != c["b"])
    rng = Random(0)
    counts = Counter(space.draw(rng) for _ in range(600))
    assert len(counts) == 6 and all(map(space.allows, counts)) and min(counts.values()) > 50


def test_random_candidates_that_are_not_seen_run_through_the_whole_space_and_end():
    space = reduction().space
    rng, seen = Random(1), set()
    while (candidate := space.draw(rng, seen)) is not None:
        assert candidate not in seen
        seen.add(candidate)
    assert seen == set(space.candidates())


def test_a_single_legal_candidate_among_many_is_drawn():
    space = OptionSpace({name: tuple(range(10)) for name in "abcd"}, lambda c: set(c.values()) == {7})
    assert dict(space.draw(Random(0))) == dict.fromkeys("abcd", 7)


def test_a_large_space_without_a_legal_candidate_yields_none():
    asked = []
    space = OptionSpace({name: tuple(range(1000)) for name in "abcd"}, lambda c: bool(asked.append(c)))
    assert space.draw(Random(0)) is None
    assert len(asked) <= 200_000


def test_neighbours_differ_in_one_option_and_are_legal():
    space = OptionSpace({"a": (1, 2, 3), "b": (1, 2)}, lambda c: c["a"] + c["b"] < 5)
    neighbours = [dict(one) for one in space.neighbours(TuningCandidate({"a": 2, "b": 2}))]
    assert neighbours == [{"a": 1, "b": 2}, {"a": 2, "b": 1}]


def test_mutation_changes_all_options_or_none_at_the_ends_of_its_probability():
    space = matmul().space
    rng, candidate = Random(0), space.at(0)
    assert space.mutated(candidate, 0.0, rng) == candidate
    mutant = space.mutated(candidate, 1.0, rng)
    assert all(mutant[name] != candidate[name] for name in space.options)


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"a": 1}, "other options"),
        ({"a": 1, "b": 4}, "value 4"),
        ({"a": True, "b": 1}, "value True"),
        ({"a": 2, "b": 2}, "ill"),
    ],
)
def test_a_candidate_that_is_none_of_a_space_is_refused(values, fault):
    space = OptionSpace({"a": (1, 2), "b": (1, 2)}, lambda c: c["a"] * c["b"] < 4)
    assert not space.allows(TuningCandidate(values))
    with pytest.raises(UsageError, match=fault):
        space.check(TuningCandidate(values))


def test_every_candidate_of_a_space_round_trips_through_json():
    space = OptionSpace({"a": (None, True, 1, 1.0, "é\n\x00", (1, "x", None)), "b": ((), (0.1,), -0.0)})
    for candidate in space.candidates():
        again = TuningCandidate.from_text(candidate.text)
        assert again == candidate and space.allows(again) and json.loads(candidate.text).keys() == {"a", "b"}


def test_tiles_are_powers_of_two_and_rounded_quotients_of_the_extent():
    assert tile_candidates(1) == (1,)
    assert tile_candidates(7) == (1, 2, 3, 4, 7)
    assert tile_candidates(128)[-4:] == (32, 43, 64, 128)
    assert len(tile_candidates(10_000_000)) < 7000


@pytest.mark.parametrize("extent", [0, -1, 2.0, True, "8"])
def test_an_extent_that_is_no_size_is_refused(extent):
    with pytest.raises(UsageError, match="extent"):
        tile_candidates(extent)


@pytest.mark.parametrize(
    "given",
    [
        {"generations": 0},
        {"population": 2},
        {"population": 3.0},
        {"elites": -1},
        {"population": 10, "elites": 10},
        {"mutation": -0.1},
        {"mutation": 1.5},
        {"mutation": float("nan")},
        {"mutation": True},
        {"seed": -1},
        {"seed": "a"},
        {"seconds": 0},
        {"seconds": float("nan")},
        {"threads": 0},
        {"threads": 10**6},
    ],
)
def test_a_setting_outside_its_domain_is_refused_by_name(given):
    with pytest.raises(UsageError, match=list(given)[-1]):
        TunerConfig(**given)
