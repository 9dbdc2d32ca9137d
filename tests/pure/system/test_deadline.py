"""The deadline of a call, against a clock that a test moves."""

import threading

import numpy as np
import pytest

from eqsat.egraph.derived import fold_derived
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.builder import Builder
from eqsat.language.terms.types import TensorType
from eqsat.system.deadline import NEVER, Deadline, TimeUp, check, current, expect, watched


class Hand:
    """A clock that stands still until a test moves it."""

    def __init__(self):
        self.time = 100.0

    def __call__(self):
        return self.time


@pytest.fixture
def hand():
    return Hand()


def test_time_that_passes_in_a_pause_does_not_count(hand):
    deadline = Deadline(10.0, now=hand)
    hand.time += 2
    with deadline.paused():
        hand.time += 30
    assert deadline.left == 8.0


def test_a_pause_in_a_pause_is_a_part_of_it(hand):
    deadline = Deadline(10.0, now=hand)
    with deadline.paused():
        hand.time += 3
        with deadline.paused():
            hand.time += 30
        hand.time += 3
    assert deadline.left == 10.0
    hand.time += 1
    assert deadline.left == 9.0


def test_a_pause_of_a_part_is_one_of_the_whole(hand):
    whole = Deadline(10.0, now=hand)
    half = whole.part(0.5)
    other = whole.part(0.3)
    with half.paused():
        hand.time += 4
    assert (whole.left, half.left, other.left) == (10.0, 5.0, 0.0)
    with whole.paused():
        hand.time += 1
        with half.part(0.5).paused():
            hand.time += 2
        hand.time += 1
    assert whole.left == 10.0, "counted once"
    counted = Deadline(steps=10)
    with counted.part(0.5).paused():
        counted.spend(7)
    assert counted.steps == 10


def test_slowness_is_what_passes_for_each_second_of_a_processor(hand):
    worker = Hand()
    deadline = Deadline(100.0, now=hand, worked=worker)
    hand.time += 9
    assert deadline.slowness == 1.0, "too little was done to tell"
    worker.time += 3
    assert deadline.slowness == deadline.part(0.5).slowness == 3.0
    with deadline.paused():
        hand.time += 50
        worker.time += 1
    assert deadline.slowness == 3.0
    worker.time += 27  # in several threads
    assert deadline.slowness == 1.0
    deadline.begin()
    hand.time += 4
    worker.time += 2
    assert deadline.slowness == 2.0


def test_a_part_ends_before_the_whole_and_both_read_one_clock(hand):
    whole = Deadline(10.0, now=hand)
    hand.time += 2
    part, short = whole.part(0.5), whole.part(0.5, most=1.0)
    assert (whole.left, part.left, short.left) == (8.0, 4.0, 1.0)
    hand.time += 4
    assert part.over and not whole.over
    hand.time += 4
    assert whole.over and whole.left == 0.0 and whole.part().over
    with pytest.raises(TimeUp) as raised:
        whole.check()
    assert str(raised.value) == "the time limit of 10 s is over"


def test_a_clock_that_begins_anew_forgets_what_passed(hand):
    whole = Deadline(10.0, now=hand)
    hand.time += 60
    assert whole.over
    whole.begin()
    assert whole.left == 10.0


def test_work_is_ended_by_the_deadline_it_is_done_under(hand):
    whole = Deadline(10.0, now=hand)
    with whole:
        assert current() is whole
        with whole.part(0.5):
            hand.time += 6
            with pytest.raises(TimeUp):
                check()
        check()
        with NEVER:
            hand.time += 60
            check()
        with pytest.raises(TimeUp):
            check()
    assert current() is NEVER
    check()


def test_the_end_of_a_call_that_is_over_has_a_little_more_time(hand):
    for seconds, more in ((1.0, 0.5), (30.0, 3.0)):
        whole = Deadline(seconds, now=hand)
        hand.time += seconds
        assert whole.over and whole.grace().left == pytest.approx(more)


def test_steps_are_counted_for_the_whole_wherever_they_are_taken():
    whole = Deadline(1e-9, steps=1000)
    part = whole.part(0.1)
    with part, pytest.raises(TimeUp, match="the limit of 1 000 steps is reached"):
        for _ in range(200):
            check()
    assert (whole.left, whole.steps, part.steps) == (900.0, 900, 0)
    assert whole.seconds == float("inf") and not whole.grace().over
    whole.spend(900)
    assert whole.over


def test_work_that_would_end_too_late_is_not_begun(hand):
    whole = Deadline(10.0, now=hand)
    with whole:
        expect(9.0)
        with pytest.raises(TimeUp, match="the time limit of 10 s is over"):
            expect(11.0)
        hand.time += 5
        with pytest.raises(TimeUp):
            expect(9.0)
    expect(1e9)
    with Deadline(steps=10):
        expect(1e9)


def test_a_call_that_is_asked_to_end_has_a_little_time_left_in_all_its_parts(hand):
    asked = threading.Event()
    whole = Deadline(60.0, now=hand, asked=asked.is_set)
    part, short = whole.part(0.5), whole.part(most=1.0)
    assert (whole.left, part.left, short.left) == (60.0, 30.0, 1.0)
    asked.set()
    assert (whole.left, part.left, short.left) == (3.0, 3.0, 1.0)
    hand.time += 2
    assert (whole.left, whole.part(0.5).left) == (1.0, 0.5) and not part.over
    hand.time += 1
    assert part.over and whole.grace().left == 0.5
    with pytest.raises(TimeUp, match="the run was interrupted"):
        whole.check()
    near = Deadline(2.0, now=hand, asked=asked.is_set)
    assert near.left == 2.0
    counting = Deadline(steps=1000, asked=asked.is_set)
    counting.spend(5)
    assert counting.left == 100


def test_time_is_kept_for_what_follows(hand):
    whole = Deadline(10.0, now=hand)
    kept = whole.before(4.0)
    assert (kept.left, kept.part(0.5).left, whole.left) == (6.0, 3.0, 10.0)
    hand.time += 6.0
    assert kept.over and not whole.over and whole.left == 4.0
    assert kept.reason == whole.reason == "the time limit of 10 s is over"
    assert Deadline(steps=10).before(4.0).left == 10
    assert Deadline(1.0, now=hand).before(4.0).over


def test_a_long_loop_is_ended_by_the_deadline(hand):
    passed = []
    with Deadline(10.0, now=hand), pytest.raises(TimeUp):
        for item in watched(range(10**6)):
            passed.append(item)
            hand.time += 0.001
    assert passed == list(range(len(passed))) and 10_000 <= len(passed) < 12_000
    counting = Deadline(steps=10)
    with counting:
        assert list(watched(range(5000))) == list(range(5000))
    assert counting.left == 10


def test_a_node_over_large_constants_is_not_computed_where_that_would_end_too_late(hand):
    g = Builder("large")
    scaled = g.apply("mul", g.constant(np.ones((1024, 1024), np.float32)), g.constant(np.float32(2)))
    product = g.apply("matmul", scaled, g.constant(np.ones((1024, 1024), np.float32)))
    g.output("y", g.apply("add", g.input("x", (1024, 1024)), product))
    graph = g.build()
    with Deadline(100.0, now=hand):
        assert [n.op for n in fold_derived(graph).nodes] == ["add"]
    for seconds in (1e-3, 0.2):  # the first is less than either takes, the second less than the product
        with Deadline(seconds, now=hand), pytest.raises(TimeUp):
            fold_derived(graph)


def test_a_large_constant_is_widened_a_part_at_a_time(hand, monkeypatch):
    monkeypatch.setattr("eqsat.language.arithmetic.floats.PART", 4)
    given = np.arange(30, dtype=np.float32).reshape(5, 6)[:, ::-1]
    type = TensorType.of("float32", (5, 6))
    wide = Floats(wide=True).constant(given, type)
    assert wide.dtype == np.float64 and (wide == given).all()
    whole = Deadline(3.0, now=lambda: setattr(hand, "time", hand.time + 1) or hand.time)
    with whole, pytest.raises(TimeUp):
        Floats(wide=True).constant(given, type)


def test_a_deadline_that_is_not_given_never_comes():
    assert not NEVER.over and NEVER.part(0.01).left == float("inf")
    with NEVER.ending(lambda: pytest.fail("ended")):
        pass


def test_what_cannot_look_at_the_deadline_is_asked_to_end():
    asked = threading.Event()
    with Deadline(0.01).ending(asked.set):
        assert asked.wait(60)
    later = threading.Event()
    with Deadline(1e6).ending(later.set):
        pass
    assert not later.is_set()
