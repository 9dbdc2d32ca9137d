"""Views of buffers against NumPy's own strided arrays."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat.errors import UsageError
from eqsat.language.terms.types import DType
from eqsat.runtime.kernels.view import View

SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)


def places(view):
    """The place in the buffer of every element, by going through them one by one."""
    found = np.empty(view.shape, np.int64)
    for index in itertools.product(*map(range, view.shape)):
        found[index] = view.offset + sum(i * s for i, s in zip(index, view.strides, strict=True))
    return found


@st.composite
def changes(draw):
    """A view made by random steps, and the array NumPy makes of the same steps."""
    shape = draw(SHAPES)
    order = draw(st.permutations(range(len(shape))))
    view = View.of("x", DType.FLOAT32, shape, order)
    stored = tuple(shape[a] for a in order)
    array = np.arange(math.prod(shape)).reshape(stored).transpose(np.argsort(order) if order else ())
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(("permute", "slice", "broadcast", "reshape")))
        if kind == "permute":
            perm = draw(st.permutations(range(view.rank)))
            view, array = view.permuted(perm), array.transpose(perm)
        elif kind == "slice" and view.rank:
            axis = draw(st.integers(0, view.rank - 1))
            begin, end = draw(st.integers(-1, view.shape[axis])), draw(st.integers(-1, view.shape[axis]))
            step = draw(st.sampled_from((-2, -1, 1, 2)))
            taken = range(*slice(begin, end, step).indices(view.shape[axis]))
            view = view.sliced(axis, taken.start, len(taken), step)
            array = array[(slice(None),) * axis + (slice(begin, end, step),)]
        elif kind == "broadcast":
            target = (2, *(3 if d == 1 else d for d in view.shape))
            view, array = view.broadcast_to(target), np.broadcast_to(array, target)
        elif kind == "reshape" and array.size:
            target = (array.size,) if draw(st.booleans()) else (*view.shape, 1)
            changed = view.reshaped(target)
            if changed is not None:
                view, array = changed, array.reshape(target)
    return view, array


@given(changes())
def test_a_view_finds_the_elements_that_numpy_finds(drawn):
    view, array = drawn
    assert view.shape == array.shape
    assert (places(view) == array).all()
    low, high = view.extent
    if view.count:
        assert (low, high) == (4 * array.min(), 4 * (array.max() + 1))
        assert view.is_contiguous == (array.ravel() == np.arange(array.min(), array.min() + array.size)).all()
    else:
        assert low == high


@given(changes(), SHAPES)
def test_a_reshape_without_a_copy_is_found_where_there_is_one(drawn, target):
    view, array = drawn
    if math.prod(target) != view.count or not view.count:
        return
    changed = view.reshaped(target)
    wanted = array.reshape(target)
    if changed is not None:
        assert (places(changed) == wanted).all()
        return
    # No strides at all give these places: along some axis the steps differ.
    steps = [np.diff(wanted, axis=axis) for axis in range(wanted.ndim)]
    assert any(step.size and (step != step.flat[0]).any() for step in steps)


def test_alignment_is_that_of_the_first_element():
    view = View.of("x", DType.FLOAT16, (64,))
    assert [view.sliced(0, start, 8).alignment for start in (0, 1, 2, 4, 8, 24)] == [16, 2, 4, 8, 16, 16]


def test_what_does_not_fit_is_refused():
    view = View.of("x", DType.FLOAT32, (2, 3))
    with pytest.raises(UsageError, match=r"\[2, 3\] as \[4, 3\]"):
        view.broadcast_to((4, 3))
    with pytest.raises(UsageError, match=r"\[2, 3\] as \[3\]"):
        view.broadcast_to((3,))
    with pytest.raises(UsageError, match="as many elements"):
        view.reshaped((7,))
