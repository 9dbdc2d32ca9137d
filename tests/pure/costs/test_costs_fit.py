"""Estimates fitted to measured operators: what they recover, what bounds them, and what they fall back on."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat.costs.devices.device import Device
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.model.fit import FACTOR, Fit, folds, known_work, nonnegative
from eqsat.costs.table.entry import Entry
from eqsat.language.ops import spec
from eqsat.language.terms.types import TensorType

DEVICE = Device.of("onnxruntime-cpu")


def key(op, *shapes, const=(), **attrs):
    types = [TensorType.of("float32", s) for s in shapes]
    return OpKey.of(op, spec(op).complete(attrs), types, [i in const for i in range(len(shapes))], {})


def entry(seconds):
    return Entry(seconds, seconds, seconds, 20)


def table(seconds, keys):
    """Entries that a law of the work gives."""
    return {k.text: entry(seconds(known_work(k.text))) for k in keys}


def misses(fit, seconds, keys):
    """By which factor the fit misses the law on keys that it was not given."""
    return [math.exp(abs(math.log(fit.seconds(known_work(k.text)) / seconds(known_work(k.text))))) for k in keys]


MATMULS = [key("matmul", (m, k), (k, n), const={1}) for m in (1, 8, 64, 512) for k in (32, 256) for n in (48, 384, 640)]


def test_a_sum_of_terms_is_recovered_where_the_roofline_is_wrong():
    """A device that launches slowly, and computes at a third of its peak: no one factor says both."""

    def law(work):
        return 5e-6 + 3 * work.flops / DEVICE.peak("float32") + 2 * work.weight_bytes / DEVICE.weight_bandwidth

    fit = Fit(DEVICE, table(law, MATMULS[::2]))
    assert max(misses(fit, law, MATMULS[1::2])) < 1.05
    assert max(misses(Fit(DEVICE, {}), law, MATMULS[1::2])) > 3


def test_neighbours_correct_what_the_sizes_alone_do_not_explain():
    """Where an operand is broadcast, it takes five times as long: only the entries that are like it say so."""

    def law(work):
        return DEVICE.roofline(work) * (5 if work.spread > 1 else 1)

    alike = [key("add", (n, 64), (n, 64)) for n in range(10, 210, 10)]
    spread = [key("add", (n, 64), (64,), const={1}) for n in range(10, 210, 10)]
    fit = Fit(DEVICE, table(law, [*alike[::2], *spread[::2]]))
    assert np.median(misses(fit, law, [*alike[1::2], *spread[1::2]])) < 1.1


def test_without_entries_of_an_operator_its_estimate_is_the_roofline():
    fit = Fit(DEVICE, table(lambda w: 1.0, MATMULS))
    other = known_work(key("tanh", (4, 4)).text)
    assert fit.seconds(other) == DEVICE.roofline(other)


def test_one_entry_corrects_its_own_shape_and_not_distant_ones():
    near, far = key("tanh", (64, 64)), known_work(key("tanh", (64, 64_000)).text)
    known = known_work(near.text)
    fit = Fit(DEVICE, {near.text: entry(3 * DEVICE.roofline(known))})
    assert 2 < fit.seconds(known) / DEVICE.roofline(known) < 3
    assert fit.seconds(far) == pytest.approx(DEVICE.roofline(far))


def test_products_with_and_without_a_bias_are_one_family():
    bias = key("gemm", (64, 256), (256, 384), (384,), const={1, 2})
    fit = Fit(DEVICE, table(lambda w: 2 * DEVICE.roofline(w), MATMULS))
    assert fit.seconds(known_work(bias.text)) == pytest.approx(2 * DEVICE.roofline(known_work(bias.text)), rel=0.01)


def test_far_from_all_entries_the_estimate_stays_near_the_roofline_as_scaled():
    """Launches alone were measured: their time says nothing of a large product, which must not be free."""
    small = [key("matmul", (1, k), (k, n)) for k in (1, 2, 3, 4) for n in (1, 2, 3, 4)]
    fit = Fit(DEVICE, table(lambda w: DEVICE.launch, small))
    large = known_work(key("matmul", (512, 512), (512, 512)).text)
    assert DEVICE.roofline(large) / fit.seconds(large) < 1.1 * FACTOR


def test_operators_of_another_version_are_left_out_and_zero_seconds_are_no_error():
    text = key("tanh", (4, 4)).text
    fused = f"{text} ; relu {{}} %0:float32[4, 4]"
    fit = Fit(DEVICE, {"wave {} float32[4, 4]": entry(1.0), fused: entry(1.0), text: entry(0.0)})
    assert fit.seconds(known_work(text)) > 0


@given(st.integers(1, 60), st.integers(2, 7), st.integers(0, 5))
def test_folds_hold_back_each_entry_once(count, parts, seed):
    made = folds(count, parts, seed)
    assert sorted(i for _, inside in made for i in inside) == list(range(count))
    for outside, inside in made:
        assert sorted([*outside, *inside]) == list(range(count))


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 6))
def test_least_squares_of_nonnegative_coefficients_is_that_of_scipy(seed, rows, columns):
    from scipy.optimize import nnls

    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((rows, columns)), rng.standard_normal(rows)
    found = nonnegative(a, b)
    assert np.all(found >= 0)
    assert np.linalg.norm(a @ found - b) <= nnls(a, b)[1] + 1e-5
