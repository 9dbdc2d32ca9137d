"""Operators without a kernel: references on a device's arrays compute what they do on NumPy's, or go to the host."""

import random

import numpy as np
import pytest
import scipy.special

from eqsat.language.arithmetic.floats import Floats
from eqsat.language.declaration.spec import same_as
from eqsat.language.ops import OPS, op, sampling
from eqsat.language.terms import Attrs, DType, Graph, Node, TensorType
from eqsat.runtime.cuda.program.fallback import DeviceFallback, DeviceFloats, run_fallback
from eqsat.runtime.cuda.program.lowering import program_of
from eqsat.runtime.kernels.view import View
from eqsat.runtime.programs.arrays import aligned, strided
from eqsat.runtime.programs.launches import Fallback, Launch
from tests.support.cuda_groups import WITHOUT_KERNEL

NAMES = sorted(name for name, declared in OPS.items() if declared.sample is not None and not declared.random)


def elements(rng, type):
    if type.dtype is DType.BOOL:
        return rng.random(type.static) < 0.5
    if type.dtype.is_integer:
        return rng.integers(-1, 1, type.static).astype(type.dtype.numpy)
    return rng.uniform(0.1, 3, type.static).astype(type.dtype.numpy)


def launch_of(name, seed):
    """An operator over random operands: its launch, and where its views lie."""
    rng = random.Random(f"{name}:{seed}")
    found = None
    while found is None:
        found = sampling.draw(OPS[name], rng, {"to": "float32"} if name == "cast" else None)
    types, attrs = found
    results = OPS[name].result_types(types, attrs)
    places = [None if t is None else f"x{i}" for i, t in enumerate(types)]
    made = tuple(f"y{i}" for i in range(len(results)))
    given = {v: t for v, t in zip((*places, *made), (*types, *results), strict=True) if v is not None}
    views = {v: View.of(v, t.dtype, t.static) for v, t in given.items()}
    memory = {v: aligned(view.nbytes) for v, view in views.items()}
    for v, t in given.items():
        strided(memory[v], views[v])[...] = elements(np.random.default_rng(seed), t)
    node = Node(name, tuple(places), made, Attrs(attrs))
    reads = tuple(views[v] for v in places if v is not None)
    launch = Launch(Fallback(node), reads, tuple(views[v] for v in made), made)
    return launch, lambda view: strided(memory[view.buffer], view)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", NAMES)
def test_an_array_module_that_has_numpys_functions_gives_the_same(name):
    for seed in range(3):
        launch, array = launch_of(name, seed)
        wanted = run_fallback(launch.work, launch, array, Floats())
        try:
            made = run_fallback(launch.work, launch, array, DeviceFloats(np, scipy.special))
        except ValueError:  # over no elements CuPy has no extreme, and the host is asked
            assert any(view.count == 0 for view in launch.reads)
            continue
        for one, other in zip(made, wanted, strict=True):
            assert one.dtype == other.dtype and one.shape == other.shape
            np.testing.assert_allclose(np.asarray(one, np.float64), np.asarray(other, np.float64), rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_only_what_is_listed_has_no_kernel(name):
    """Of one step there are kernels, as no step follows another."""
    fallen = 0
    for seed in range(3):
        launch, _ = launch_of(name, seed)
        types = {v.buffer: TensorType(v.dtype, v.shape) for v in (*launch.reads, *launch.writes)}
        inputs, outputs = ([v.buffer for v in views] for views in (launch.reads, launch.writes))
        graph = Graph("one", tuple(inputs), dict(zip(outputs, outputs, strict=True)), (launch.work.node,), {}, types)
        fallen += any(isinstance(one.work, Fallback) for one in program_of(graph).launches)
    assert fallen > 0 if name in WITHOUT_KERNEL else fallen == 0


class Foreign:
    """An array that NumPy does not read, as CuPy's are: what can be done with it is to be copied."""

    __array_ufunc__ = None

    def __init__(self, held):
        self.held, self.shape, self.dtype, self.ndim = held, held.shape, held.dtype, held.ndim

    def __array__(self, *_, **__):
        raise TypeError("not on the host")

    def __setitem__(self, key, value):
        self.held[key] = value


@pytest.mark.parametrize("name", ["topk", "cumsum", "scatter_nd", "softmax"])
def test_a_reference_that_does_not_run_there_runs_on_the_host(name):
    launch, array = launch_of(name, 0)
    wanted = run_fallback(launch.work, launch, array, Floats())
    copies = []

    def to_host(one):
        copies.append(one)
        return one.held

    fallback = DeviceFallback(np, scipy.special, to_host)
    for _ in range(2):
        fallback.run(launch.work, launch, lambda view: Foreign(array(view)))
        for view, one in zip(launch.writes, wanted, strict=True):
            np.testing.assert_array_equal(array(view), one)
    assert fallback.on_host == {name} and len(copies) == 2 * len(launch.reads)


def test_a_users_reference_that_does_not_run_there_runs_on_the_host():
    @op("sorted_rows", infer=same_as())
    def sorted_rows(xp, x):
        """Each row in order, by NumPy itself."""
        return np.sort(x)

    view, made = (View.of(name, DType.FLOAT32, (2, 3)) for name in "xy")
    memory = {"x": np.float32([[3, 1, 2], [0, 5, 4]]), "y": np.zeros((2, 3), np.float32)}
    launch = Launch(Fallback(Node("sorted_rows", ("x",), ("y",))), (view,), (made,), ("y",))
    fallback = DeviceFallback(np, scipy.special, lambda one: one.held)
    fallback.run(launch.work, launch, lambda found: Foreign(memory[found.buffer]))
    assert memory["y"].tolist() == [[1, 2, 3], [0, 4, 5]]
    assert fallback.on_host == {"sorted_rows"}


def test_integers_are_divided_and_raised_as_onnx_has_it():
    xp = DeviceFloats(np, scipy.special).namespace([], [])
    a, b = np.int32([7, -7, 7, -7, 6]), np.int32([2, 2, -2, -2, 3])
    assert xp.divide(a, b).tolist() == [3, -3, -3, 3, 2]
    assert xp.power(np.int32([2, 2]), np.int32([3, -1])).tolist() == [8, 0]
    assert xp.number(0.5, a) == 0.5 and xp.number(2.0, a).dtype == np.int32
    finished = DeviceFloats(np, scipy.special).finish(np.float64([1.5]), TensorType.of("float16", (1,)))
    assert finished.dtype == np.float16
