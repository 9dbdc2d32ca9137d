"""The protocol that measures GPUs, on a simulated device: true costs, a cache, fixed costs, noise, and a clock that
drifts."""

from collections import OrderedDict

import numpy as np
import pytest

from eqsat.costs.kernels.key import OpKey
from eqsat.costs.measuring import campaign, protocol
from eqsat.costs.measuring.campaign import SENTINEL, Measuring
from eqsat.costs.measuring.protocol import drifted, measure, settled
from eqsat.costs.table.environment import Environment
from eqsat.costs.table.table import CostTable
from eqsat.errors import BackendError, CostError, UsageError

HERE = Environment("nvidia-h200", "NVIDIA H200, driver 1", "cupy 14", 1)
L2 = 50 << 20
#: The bound within which medians of noisy replays must meet the truth.
BOUND = 0.01


class Device:
    """A device whose true costs are known: a second-level cache that forgets what was used longest ago, and a clock.

    `noise` is the deviation of a replay's time, `spikes` the share of replays that something else disturbs; `speed` is
    the factor on every time at a moment of the device's own clock, in seconds.
    """

    def __init__(self, *, noise=0.0, spikes=0.0, overhead=8e-6, speed=lambda now: 1.0, seed=0):
        self.rng = np.random.default_rng(seed)
        self.noise, self.spikes, self.overhead, self.speed = noise, spikes, overhead, speed
        self.l2_bytes, self.now, self.held = L2, 0.0, OrderedDict()
        self.open = 0

    def use(self, name, nbytes):
        """Whether a buffer lies in the cache; it does afterwards."""
        hit = self.held.pop(name, None) is not None
        self.held[name] = nbytes
        while sum(self.held.values()) > L2:
            self.held.popitem(last=False)
        return hit

    def sweep(self):
        self.held.clear()
        self.now += 1e-4


class Subject:
    """A kernel: the true (hot, cold) seconds of each plan; one of None fails, one of () fails when it is replayed."""

    def __init__(self, device, plans, weight_bytes=0):
        self.device, self.costs, self.weight_bytes = device, plans, weight_bytes
        self.plans = tuple(name for name in plans if name)
        self.generations = []

    def further(self, times):
        return self.generations.pop(0)(times) if self.generations else ()

    def graph(self, plan, copies, weights):
        if self.costs[plan] is None:
            raise BackendError(f"plan {plan} is not supported")
        self.device.open += 1
        return Replay(self, plan, copies, weights)

    def close(self):
        pass


class Replay:
    def __init__(self, subject, plan, copies, weights):
        self.subject, self.plan, self.copies, self.weights = subject, plan, copies, weights

    def seconds(self):
        device, costs = self.subject.device, self.subject.costs[self.plan]
        if not costs:
            raise BackendError(f"plan {self.plan} fails at a run")
        hot, cold = costs
        size = self.subject.weight_bytes
        hits = sum(size == 0 or device.use((id(self.subject), i % self.weights), size) for i in range(self.copies))
        taken = device.overhead + hits * hot + (self.copies - hits) * cold
        taken *= device.speed(device.now) * (1 + device.noise * device.rng.standard_normal())
        if device.rng.random() < device.spikes:
            taken *= 1.5
        device.now += taken
        return taken

    def close(self):
        self.subject.device.open -= 1


@pytest.mark.parametrize("weight_bytes", [3072, 1 << 20, 24 << 20, 400 << 20])
@pytest.mark.parametrize("seconds", [1e-6, 4e-5, 3e-3])
def test_fixed_costs_cancel_and_cold_and_hot_are_told_apart(weight_bytes, seconds):
    device = Device()
    cold = 3 * seconds
    entry = measure(Subject(device, {"": (seconds, cold)}, weight_bytes), device)
    assert entry.seconds == pytest.approx(cold, rel=1e-9)
    # What does not fit the cache is never hot.
    assert entry.hot == pytest.approx(cold if weight_bytes > L2 else seconds, rel=1e-9)
    assert (entry.plan, entry.samples, device.open) == ("", 20, 0)


def test_without_constants_there_is_one_time():
    device = Device()
    entry = measure(Subject(device, {"": (2e-6, 9.0)}), device)
    assert (entry.seconds, entry.hot) == (pytest.approx(2e-6), None)


def test_a_subject_goes_on_to_plans_by_the_times_of_those_before():
    device, asked = Device(), []
    costs = {"a": (3e-6, 3e-6), "b": (2e-6, 2e-6), "c": None, "d": (1e-6, 1e-6), "e": ()}
    subject = Subject(device, costs)
    subject.plans = ("a", "b")

    def generation(*plans):
        return lambda times: asked.append({plan: round(seconds, 9) for plan, seconds in times.items()}) or plans

    subject.generations = [generation("c", "e"), generation("d"), generation()]
    entry = measure(subject, device)
    assert (entry.plan, entry.seconds, device.open) == ("d", pytest.approx(1e-6), 0)
    assert asked == [{"a": 3e-6, "b": 2e-6}, {"a": 3e-6, "b": 2e-6}, {"a": 3e-6, "b": 2e-6, "d": 1e-6}]


@pytest.mark.parametrize("weight_bytes", [0, 1 << 20])
def test_a_plan_that_fails_when_it_is_replayed_costs_no_other(weight_bytes):
    device = Device()
    plans = {"a": (), "b": (3e-6, 4e-6), "c": (), "d": (2e-6, 3e-6)}
    entry = measure(Subject(device, plans, weight_bytes), device)
    assert (entry.plan, device.open) == ("d", 0)
    with pytest.raises(CostError, match="no plan runs: plan c fails at a run"):
        measure(Subject(device, {"a": (), "c": ()}, weight_bytes), device)


@pytest.mark.parametrize("seed", range(5))
def test_noise_and_disturbed_replays_move_the_median_by_less_than_the_bound(seed):
    device = Device(noise=0.004, spikes=0.1, seed=seed)
    entry = measure(Subject(device, {"": (6e-6, 8e-6)}, 2 << 20), device, seed=seed)
    assert entry.seconds == pytest.approx(8e-6, rel=BOUND)
    assert entry.hot == pytest.approx(6e-6, rel=BOUND)
    assert entry.p10 < entry.seconds < entry.p90


@pytest.mark.parametrize("seed", range(3))
def test_the_fastest_plan_is_found_among_many_and_is_part_of_the_entry(seed):
    device = Device(noise=0.004, seed=seed)
    # Twelve plans; the one that is best cold is neither the first nor the best hot.
    plans = {f"cublaslt 1 {n:02x} 0": ((5 + n) * 1e-6, (9 + n) * 1e-6) for n in range(12)}
    plans["cublaslt 1 ff 0"] = (12e-6, 8.6e-6 + 0.0)
    plans["cudnn 7"] = None
    entry = measure(Subject(device, plans, 1 << 20), device, seed=seed)
    assert entry.plan == "cublaslt 1 ff 0"
    assert entry.seconds == pytest.approx(8.6e-6, rel=BOUND)
    assert device.open == 0


def test_candidates_that_are_timed_while_the_clock_falls_are_still_compared_alike():
    # 10 % slower over the run: whoever is timed last would lose by far more than the 3 % between the two.
    device = Device(speed=lambda now: 1 + 0.1 * min(now / 0.05, 1.0))
    entry = measure(Subject(device, {"a": (2.06e-5, 2.06e-5), "b": (2e-5, 2e-5)}), device)
    assert entry.plan == "b"


def test_a_kernel_that_does_not_run_says_why_and_gives_back_what_it_held():
    device = Device()
    with pytest.raises(CostError, match="no plan runs: plan x is not supported"):
        measure(Subject(device, {"x": None}), device)
    with pytest.raises(CostError, match="replays = 19\n  expected 20 or more"):
        measure(Subject(device, {"": (1e-6, 1e-6)}), device, replays=19)
    assert device.open == 0


def test_a_card_that_was_idle_is_awaited_and_one_that_never_settles_is_refused():
    device = Device(speed=lambda now: max(2.0 - now / 0.05, 1.0))
    assert settled(Subject(device, {"": (2e-5, 2e-5)})) == pytest.approx(2e-5, rel=0.03)
    device = Device(speed=lambda now: 1 + now * 30)
    with pytest.raises(CostError, match="the device does not settle"):
        settled(Subject(device, {"": (2e-5, 2e-5)}))


def test_drift_is_judged_at_two_per_cent():
    assert [drifted(1.0, after) for after in (0.979, 0.981, 1.0, 1.019, 1.021, 0.0)] == [
        True,
        False,
        False,
        False,
        True,
        True,
    ]


def key(n):
    return OpKey.parse(f"relu {{}} float32[{n}]")


def campaign_of(device, table, *, broken=()):
    """Measuring kernels that take n microseconds, the sentinel 20."""

    def subject(of):
        if of == SENTINEL:
            return Subject(device, {"": (2e-5, 2e-5)}, 8 << 20)
        if of in broken:
            raise BackendError("no kernel for it")
        seconds = of.operands[0].static[0] * 1e-6
        return Subject(device, {"": (seconds, seconds)})

    return Measuring(subject, device, table, HERE, SENTINEL)


@pytest.fixture(autouse=True)
def _windows(monkeypatch):
    monkeypatch.setattr(campaign, "WINDOW", 5)
    monkeypatch.setattr(protocol, "MOST_COPIES", 32)


def test_a_steady_device_fills_the_table_and_a_second_run_measures_nothing():
    table, device = CostTable(":memory:"), Device(noise=0.001)
    keys = [key(n) for n in range(1, 13)]
    seen = []
    done = campaign_of(device, table, broken={key(3)}).run(keys, lambda *news: seen.append(news))
    assert (done.measured, done.known, done.left, done.discarded) == (11, 0, 0, 0)
    assert done.failed == ((key(3), "no kernel for it"),)
    assert seen[0] == (0, 12, key(1))
    assert seen[-1] == (11, 12, key(12))
    entries = table.own(HERE)
    assert set(entries) == {k.text for k in keys if k != key(3)}
    for n in (1, 5, 12):
        assert entries[key(n).text].seconds == pytest.approx(n * 1e-6, rel=BOUND)
    assert list(table.environments()) == [HERE.text]
    again = campaign_of(device, table).run(keys)
    assert (again.measured, again.known) == (1, 11)


def test_a_window_in_which_the_clock_falls_is_measured_again():
    # While the second window is measured the clock falls by a tenth, and stays there.
    table, device = CostTable(":memory:"), Device()
    lowered = []

    def follow(done, total, of):
        if of == key(8) and not lowered:
            lowered.append(device.now)
            device.speed = lambda now: 1.1

    done = campaign_of(device, table).run([key(n) for n in range(1, 13)], follow)
    assert (done.measured, done.discarded, done.failed, done.left) == (12, 1, (), 0)
    entries = table.own(HERE)
    # What was measured before stays; the whole window, its steady part too, is of the new speed.
    assert entries[key(5).text].seconds == pytest.approx(5e-6)
    for n in (6, 7, 8, 12):
        assert entries[key(n).text].seconds == pytest.approx(1.1 * n * 1e-6)


def test_a_device_that_never_holds_its_clock_leaves_its_kernels_unmeasured_and_says_so():
    table, device = CostTable(":memory:"), Device()
    begun = []

    def follow(done, total, of):
        begun.append(of)
        slower = 1.05 ** len(begun)
        device.speed = lambda now: slower

    done = campaign_of(device, table).run([key(n) for n in range(1, 4)], follow)
    assert (done.measured, done.discarded, done.left) == (0, campaign.TRIES, 0)
    assert [k for k, _ in done.failed] == [key(1), key(2), key(3)]
    assert done.failed[0][1].startswith("the device drifted: its sentinel took")
    assert table.environments() == {}


def test_an_interrupted_run_keeps_what_it_measured_and_goes_on_there():
    table, device = CostTable(":memory:"), Device()
    seen = []
    stop = lambda: len(seen) >= 7  # noqa: E731
    done = campaign_of(device, table).run([key(n) for n in range(1, 13)], lambda *news: seen.append(news), None, stop)
    assert (done.measured, done.left) == (7, 5)
    assert len(table.own(HERE)) == 7
    done = campaign_of(device, table).run([key(n) for n in range(1, 13)])
    assert (done.measured, done.known) == (5, 7)


@pytest.mark.parametrize(("speed", "kept"), [(1.0, 2), (1.1, 0)])
def test_what_a_killed_run_left_is_confirmed_where_the_device_is_as_it_was(speed, kept):
    table, device = CostTable(":memory:"), Device()

    def killed(done, total, of):
        if of == key(3):
            raise MemoryError

    with pytest.raises(MemoryError):
        campaign_of(device, table).run([key(n) for n in range(1, 4)], killed)
    assert table.own(HERE) == {}
    assert len(table.own(HERE.unconfirmed)) == 2
    device.speed = lambda now: speed
    done = campaign_of(device, table).run([key(n) for n in range(1, 4)])
    assert (done.known, done.measured) == (kept, 3 - kept)
    assert len(table.own(HERE)) == 3
    assert list(table.environments()) == [HERE.text]


def test_a_kernel_that_takes_the_device_with_it_is_named():
    table, device = CostTable(":memory:"), Device()
    lost = campaign_of(device, table)
    intact = lost.subject

    def subject(of):
        made = intact(of)
        if of == key(2):
            sentinel.costs[""] = None
            raise BackendError("illegal address")
        return made

    sentinel = intact(SENTINEL)
    lost.subject = lambda of: sentinel if of == SENTINEL else subject(of)
    with pytest.raises(CostError, match="the device fails since it was measured") as caught:
        lost.run([key(1), key(2)])
    assert caught.value.where == key(2).text
    assert len(table.own(HERE.unconfirmed)) == 1


def test_a_time_limit_begins_no_kernel_and_must_be_a_time():
    table, device = CostTable(":memory:"), Device()
    done = campaign_of(device, table).run([key(n) for n in range(1, 4)], time_limit=1e-9)
    assert (done.measured, done.left) == (0, 3)
    with pytest.raises(UsageError, match="time_limit = 0"):
        campaign_of(device, table).run([], time_limit=0)
