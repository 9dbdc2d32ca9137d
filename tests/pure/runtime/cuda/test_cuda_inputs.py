"""What programs for a GPU take: NumPy, DLPack and arrays of a GPU; what they refuse; what they return."""

import sys
import types

import numpy as np
import pytest

import eqsat
from eqsat.errors import BackendError
from eqsat.language.terms.types import TensorType
from eqsat.runtime.cuda.program.lowering import program_of
from eqsat.runtime.programs.arena import arrange
from eqsat.runtime.programs.compiled import CompiledProgram
from eqsat.runtime.programs.passed import check_apart, check_output, span, taken
from eqsat.testing.cuda.host import HostMachine


class Packed:
    """An array that has DLPack's protocol and no more, on a device of some kind."""

    def __init__(self, array, kind=1, number=0):
        self.array, self.place = array, (kind, number)

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.place


class OnGpu:
    """An array of a GPU as far as its description goes."""

    def __init__(self, array, number=0):
        self.array, self.number, self.shape, self.dtype = array, number, array.shape, array.dtype
        self.strides = array.strides
        self.__cuda_array_interface__ = array.__array_interface__

    def __array__(self, *_, **__):
        raise TypeError("this array is on a GPU")

    def __dlpack_device__(self):
        return 2, self.number


class Gpu:
    number = 0

    def adopt(self, array):
        return array


def model(dtype="float32"):
    g = eqsat.Graph("m")
    x, w = g.input("x", ("n", 4), dtype=dtype), g.input("w", (4, 3), dtype=dtype)
    g.output("y", eqsat.relu(eqsat.matmul(x, w)))
    return g.build()


X = np.arange(8, dtype=np.float32).reshape(2, 4) - 4
W = np.arange(12, dtype=np.float32).reshape(4, 3) / 7
Y = (X @ W).clip(0)


@pytest.fixture
def program():
    graph = model()

    def build(sizes):
        made = program_of(graph, sizes)
        return HostMachine(made, arrange(made))

    return CompiledProgram(graph, build)


@pytest.mark.parametrize(
    "x",
    [
        X,
        Packed(X),
        Packed(X, kind=3),
        X.tolist(),
        np.asfortranarray(X),
        np.repeat(X, 2, axis=1)[:, ::2],
        X[::-1][::-1],
        Packed(np.repeat(X, 2, axis=0)[1::2]),
    ],
    ids=["numpy", "dlpack", "pinned", "list", "columns", "gaps", "turned", "dlpack-gaps"],
)
def test_arrays_of_any_kind_and_strides_go_in(program, x):
    made = program.run({"x": x, "w": W})["y"]
    assert type(made) is np.ndarray
    np.testing.assert_allclose(made, Y, rtol=1e-6)


def test_values_of_onnx_runtime_go_in_by_dlpack(program):
    import onnxruntime as ort

    x, w = (ort.OrtValue.ortvalue_from_numpy(a) for a in (X, W))
    np.testing.assert_allclose(program.run({"x": x, "w": w})["y"], Y, rtol=1e-6)


def test_what_a_package_passes_it_gets_back(program, monkeypatch):
    package = types.ModuleType("acme")
    package.from_dlpack = lambda array: Tensor(np.from_dlpack(array))
    monkeypatch.setitem(sys.modules, "acme", package)

    class Tensor(Packed):
        __module__ = "acme.tensors"

    made = program.run({"x": Tensor(X), "w": Tensor(W)})["y"]
    assert type(made) is Tensor
    np.testing.assert_allclose(made.array, Y, rtol=1e-6)
    assert type(program.run({"x": Tensor(X), "w": W})["y"]) is np.ndarray


def test_outputs_stay_on_the_gpu_only_where_all_inputs_are_there():
    graph = model()
    both = taken(graph, {"x": OnGpu(X), "w": OnGpu(W)}, Gpu())
    mixed = taken(graph, {"x": OnGpu(X), "w": W}, Gpu())
    assert both.on_device and not mixed.on_device
    assert both.arrays["x"].array is X and mixed.arrays["w"] is W


@pytest.mark.parametrize(
    ("inputs", "device", "said"),
    [
        (
            {"x": OnGpu(X, 1), "w": W},
            Gpu(),
            "m: input 'x' lies on CUDA device 1\n  expected arrays on the host or CUDA device 0\n  copy it there",
        ),
        ({"x": OnGpu(X), "w": W}, None, "m: input 'x' lies on CUDA device 0\n  expected arrays on the host\n"),
        ({"x": Packed(X, kind=10), "w": W}, Gpu(), "m: input 'x' lies on a device of DLPack's kind 10\n"),
        (
            {"x": OnGpu(X.astype(np.float64)), "w": W},
            Gpu(),
            "m: input 'x' has element type float64\n  expected float32[n, 4]\n  convert it",
        ),
        ({"x": OnGpu(X[:, :3]), "w": W}, Gpu(), "m: input 'x' of shape [2, 3] has 3 at axis 1, not 4\n"),
        ({"x": Packed(X.astype(np.int32)), "w": W}, None, "m: input 'x' has element type int32\n"),
        ({"x": X}, None, "m: input 'w' is missing\n"),
        ({"x": X, "w": W, "v": OnGpu(W)}, Gpu(), "m: unknown input 'v'\n"),
        (
            {"x": Packed(np.array(["a"])), "w": W},
            None,
            "m: input 'x' cannot be read through DLPack: ",
        ),
    ],
)
def test_what_does_not_fit_is_refused(inputs, device, said):
    with pytest.raises(BackendError) as caught:
        taken(model(), inputs, device)
    assert str(caught.value).startswith(said)


def test_outputs_are_written_to_arrays_of_the_callers(program):
    y = np.zeros((2, 3), np.float32)
    wide = np.zeros((3, 4), np.float32)
    program.run_into({"y": y}, {"x": X, "w": W})
    program.run_into({"y": wide.T[1:3]}, {"x": X, "w": W})
    np.testing.assert_allclose(y, Y, rtol=1e-6)
    np.testing.assert_allclose(wide.T[1:3], Y, rtol=1e-6)
    assert not wide[:, 0].any() and not wide[:, 3].any()


class Writable(Packed):
    """A tensor of another package, as PyTorch has them: elements are set from tensors of its own alone."""

    __module__ = "acme.tensors"

    @property
    def dtype(self):
        return "acme.float32"

    def __setitem__(self, key, value):
        if not isinstance(value, Writable):
            raise TypeError(f"can't assign a {type(value).__name__} to a tensor of acme's")
        self.array[key] = value.array


@pytest.fixture
def acme(monkeypatch):
    package = types.ModuleType("acme")
    package.from_dlpack = lambda array: Writable(np.from_dlpack(array))
    monkeypatch.setitem(sys.modules, "acme", package)


@pytest.mark.usefixtures("acme")
def test_outputs_are_written_to_tensors_of_other_packages(program):
    y = np.zeros((3, 2), np.float32)
    program.run_into({"y": Writable(y.T)}, {"x": Writable(X), "w": W})
    np.testing.assert_allclose(y.T, Y, rtol=1e-6)
    for array, fault in ((np.zeros((2, 4), np.float32), "has shape [2, 4]"), (X.astype("f8"), "has shape [2, 4]")):
        with pytest.raises(BackendError) as caught:
            program.run_into({"y": Writable(array)}, {"x": X, "w": W})
        assert f"the array for output 'y' {fault}" in str(caught.value)
    with pytest.raises(BackendError, match="has element type float64"):
        program.run_into({"y": Writable(np.zeros((2, 3)))}, {"x": X, "w": W})
    memory = np.zeros((2, 8), np.float32)
    with pytest.raises(BackendError, match="input 'x' and output 'y' share memory"):
        program.run_into({"y": Writable(memory[:, 3:6])}, {"x": Writable(memory[:, :4]), "w": W})


def test_an_array_that_never_changes_is_refused_with_its_type(program):
    class Frozen(Packed):
        def __setitem__(self, key, value):
            raise TypeError("arrays are immutable")

    with pytest.raises(BackendError, match="the array for output 'y' is a Frozen, which cannot be written to"):
        program.run_into({"y": Frozen(np.zeros((2, 3), np.float32))}, {"x": X, "w": W})


@pytest.mark.parametrize(
    ("y", "fault"),
    [
        (Packed(np.zeros((2, 3), np.float32)), "is a Packed"),
        (np.zeros((2, 4), np.float32), "has shape [2, 4]"),
        (np.zeros((2, 3)), "has element type float64"),
        (np.broadcast_to(np.zeros((1, 3), np.float32), (2, 3)), "has strides [0, 4], so that elements share memory"),
        (np.frombuffer(bytes(24), np.float32).reshape(2, 3), "is read-only"),
        (OnGpu(np.zeros((2, 3), np.float32)), "lies on another device"),
        ([0.0], "is a list"),
    ],
)
def test_arrays_that_outputs_cannot_be_written_to_are_refused(program, y, fault):
    with pytest.raises(BackendError) as caught:
        program.run_into({"y": y}, {"x": X, "w": W})
    assert str(caught.value) == (
        f"m: the array for output 'y' {fault}\n"
        "  expected a writable array: y: float32[2, 3]\n"
        "  leave it out, and take what is returned"
    )


def test_an_output_that_does_not_exist_is_refused(program):
    with pytest.raises(BackendError, match="m: no output 'q'\n  expected some of y"):
        program.run_into({"q": X}, {"x": X, "w": W})


def test_inputs_that_share_memory_with_an_output_are_refused(program):
    memory = np.zeros((2, 8), np.float32)
    with pytest.raises(BackendError) as caught:
        program.run_into({"y": memory[:, 3:6]}, {"x": memory[:, :4], "w": W})
    assert str(caught.value) == (
        "m: input 'x' and output 'y' share memory\n"
        "  expected outputs apart from inputs and from each other\n"
        "  pass a copy as input 'x'"
    )
    with pytest.raises(BackendError, match="output 'a' and output 'b' share memory"):
        check_apart({}, {"a": memory, "b": memory[1]}, "m")
    check_apart({"x": memory[0]}, {"y": memory[1]}, "m")
    check_apart({"x": OnGpu(memory)}, {"y": memory}, "m")  # addresses of two memories do not compare


@pytest.mark.parametrize("array", [X, X.T, X[::-1], X[:, 1:3], X[:0], np.float32(3) + np.zeros(())])
def test_the_memory_of_an_array_is_the_same_on_either_device(array):
    array = np.asarray(array)
    kind, low, high = span(array)
    assert (kind, high - low) == ("host", np.lib.array_utils.byte_bounds(array)[1] - low)
    face = dict(array.__array_interface__)
    if array.flags.c_contiguous:
        face["strides"] = None
    one = OnGpu(array)
    one.__cuda_array_interface__ = face
    assert span(one) == ("cuda", low, high)


def test_an_output_on_the_gpu_is_checked_as_one_on_the_host():
    declared = TensorType.of("float32", (2, 4))
    check_output("y", OnGpu(X), declared, "m", Gpu())
    with pytest.raises(BackendError, match="lies on another device"):
        check_output("y", OnGpu(X, 1), declared, "m", Gpu())


def test_a_bound_program_reads_its_inputs_once_and_is_not_disturbed_by_others(program):
    x = X.copy()
    first, second = program.bind({"x": x, "w": W}), program.bind({"x": -X, "w": W})
    x[...] = 0
    for call, wanted in ((first, Y), (second, (-X @ W).clip(0)), (first, Y)):
        call()
        (machine,) = program.machines.values()
        np.testing.assert_allclose(machine.get("y"), wanted, rtol=1e-6)


def test_a_static_program_is_filled_in_place(program):
    static = program.static({"n": 2})
    static.inputs["x"][...] = X
    static.inputs["w"][...] = W
    made = static()
    np.testing.assert_allclose(made["y"], Y, rtol=1e-6)
    assert np.shares_memory(made["y"], static.outputs["y"])
    static(x=static.inputs["x"])
    np.testing.assert_allclose(static(w=-W)["y"], (X @ -W).clip(0), rtol=1e-6)
    with pytest.raises(BackendError, match="input 'x' has element type float64"):
        static(x=X.astype(np.float64))


def test_a_closed_program_takes_its_memory_anew(program):
    program.run({"x": X, "w": W})
    program.close()
    np.testing.assert_allclose(program.run({"x": X, "w": W})["y"], Y, rtol=1e-6)
