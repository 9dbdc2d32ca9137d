"""What cuDNN is asked for: graphs of convolutions, attention and normalisations, and their plans as text.

Where cuDNN's frontend is installed the graphs are validated for real; no GPU is needed.
"""

import ctypes
import importlib
import importlib.util

import pytest

from eqsat.errors import BackendError
from eqsat.language.terms.types import DType
from eqsat.runtime.cuda.libraries import cudnn, cudnn_library
from eqsat.runtime.cuda.libraries.calls import Attention, Convolution, Normalisation
from eqsat.runtime.kernels.view import View
from tests.support.library_standins import Plans

F32, F16, BF16, F64 = DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16, DType.FLOAT64
needs_cudnn = pytest.mark.skipif(
    importlib.util.find_spec("cudnn") is None, reason="cudnn is not installed: make test-cuda"
)


def contiguous(name, *shape, dtype=F32):
    return View.of(name, dtype, shape)


def test_a_plan_of_cudnn_survives_as_text_and_is_refused_by_another_version():
    text = cudnn.plan_text("eng3_k24=0", "92800")
    assert cudnn.parse_plan(text, "92800") == "eng3_k24=0"
    with pytest.raises(BackendError, match="the plan is of cuDNN 92800, here is 91000"):
        cudnn.parse_plan(text, "91000")
    with pytest.raises(BackendError, match="is no plan of cuDNN's"):
        cudnn.parse_plan("cudnn 92800", "92800")


def image(name, *shape, last=False, dtype=F16):
    return View.of(name, dtype, shape, (0, *range(2, len(shape)), 1) if last else None)


def convolution(x=(2, 6, 9, 9), w=(4, 3, 3, 3), y=(2, 4, 9, 9), last=False, dtype=F16, **options):
    given = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "groups": 2, **options}
    return Convolution(*(image(n, *s, last=last, dtype=dtype) for n, s in zip("xwy", (x, w, y), strict=True)), **given)


def residual(dtype=F16, last=True, x=(2, 16, 9, 9), w=(8, 16, 3, 3), groups=1, **options):
    """A convolution to which a tensor as large as its result is added."""
    y = (2, 8, 9, 9)
    given = {"addend": image("a", *y, last=last, dtype=dtype), "relu": True, "groups": groups, **options}
    return convolution(x, w, y, last=last, dtype=dtype, **given)


def attention(dtype=F16, width=16, mask=None, causal=False):
    """Heads side by side, as a projection leaves them; k and v have half as many."""
    q, k, v, y = (
        View.of(n, dtype, (2, s, h, width)).permuted((0, 2, 1, 3))
        for n, s, h in (("q", 5, 4), ("k", 7, 2), ("v", 7, 2), ("y", 5, 4))
    )
    return Attention(q, k, v, y, 0.25, mask, causal)


def normalisation(dtype=F16, factors=None, centred=True, rows=6, width=24, **options):
    """Rows with a scale, and a bias for those that are centred."""
    x, y = (contiguous(name, rows, width, dtype=dtype) for name in "xy")
    scale, bias = (contiguous(name, width, dtype=factors or dtype) for name in "sb")
    given = {"x": x, "scale": scale, "result": y, "epsilon": 1e-5, "bias": bias if centred else None, **options}
    return Normalisation(**given)


MASK = View.of("m", F16, (2, 1, 1, 7)).broadcast_to((2, 4, 5, 7))
GRAPHS = [
    convolution(),
    convolution(last=True, bias=contiguous("b", 4, dtype=F16), relu=True),
    convolution(dtype=F32, arithmetic="tf32"),
    convolution((1, 6, 9), (4, 6, 3), (1, 4, 4), strides=(2,), pads=(1, 0), dilations=(1,), groups=1),
    convolution((1, 6, 9), (4, 6, 3), (1, 4, 4), True, strides=(2,), pads=(1, 0), dilations=(1,), groups=1),
    convolution((1, 1, 9, 9), (4, 1, 1, 1), (1, 4, 9, 9), True, groups=1, pads=(0, 0, 0, 0)),
    Convolution(
        image("x", 2, 9, 5, 5, last=True).sliced(1, 3, 6),
        image("w", 4, 6, 1, 1),
        image("y", 2, 8, 5, 5).sliced(1, 4, 4),
        (1, 1),
        (0, 0, 0, 0),
        (1, 1),
        1,
    ),
    residual(),
    residual(bias=contiguous("b", 8, dtype=F16), relu=False),
    residual(dtype=F32, arithmetic="tf32", bias=contiguous("b", 8)),
    attention(),
    attention(mask=MASK),
    attention(dtype=BF16, causal=True),
    normalisation(),
    normalisation(dtype=F32, centred=False),
    normalisation(dtype=BF16, factors=F32, rows=1),
]


@pytest.mark.parametrize("call", GRAPHS, ids=cudnn.described)
def test_images_in_both_layouts_heads_side_by_side_and_rows_are_expressible(call):
    assert cudnn.expressible(call) is None


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (attention(dtype=F32), "attention in float32, not float16 or bfloat16"),
        (attention(width=12), "heads 12 and 12 wide, which are no multiples of 8 up to 256"),
        (attention(mask=View.of("m", DType.BOOL, (2, 4, 5, 7))), "a mask of bool"),
        (attention(mask=View.of("m", F16, (2, 4, 7, 5)).permuted((0, 1, 3, 2))), "a mask with strides [140, 35, 1, 5]"),
        (convolution(dtype=F64), "element types float64"),
        (convolution(groups=1), "6 channels and 4 filters in 1 groups"),
        (convolution((2, 6, 0, 9)), "nothing to compute"),
        (convolution(bias=contiguous("b", 3, dtype=F16)), "a bias of shape [3], strides [1]"),
        (convolution(pads=(-1, 1, 1, 1)), "pads (-1, 1, 1, 1)"),
        (convolution(arithmetic="tf32"), "arithmetic 'tf32' on float16"),
        (
            Convolution(image("x", 6, 2, 9, 9).permuted((1, 0, 2, 3)), image("w", 4, 3, 3, 3), image("y", 2, 4, 9, 9),
                        (1, 1), (1, 1, 1, 1), (1, 1), 2),
            "x of shape [2, 6, 9, 9] has strides [81, 162, 9, 1]",
        ),
        (residual(dtype=F32), "an addend in float32 without TF32"),
        (residual(last=False), "an addend, and x of shape [2, 16, 9, 9] has strides [1296, 81, 9, 1]"),
        (residual(addend=image("a", 1, 8, 9, 9, last=True)), "an addend of float16[1, 8, 9, 9] to [2, 8, 9, 9]"),
        (
            residual(addend=image("a", 2, 8, 9, 9)),
            "an addend, and addend of shape [2, 8, 9, 9] has strides [648, 81, 9, 1]",
        ),
        (residual(w=(8, 8, 3, 3), groups=2), "an addend to a convolution in 2 groups"),
        (residual(x=(2, 12, 9, 9), w=(8, 12, 3, 3)), "an addend to 8 filters over 12 channels"),
        (normalisation(dtype=F64), "a normalisation of float64 to float64"),
        (normalisation(result=contiguous("y", 6, 24)), "a normalisation of float16 to float32"),
        (normalisation(x=contiguous("x", 24, 6, dtype=F16).permuted((1, 0))), "x of shape [6, 24] has strides [1, 6]"),
        (normalisation(result=contiguous("y", 6, 1, 24, dtype=F16)), "rows of shape [6, 24] to [6, 1, 24]"),
        (normalisation(scale=contiguous("s", 6, dtype=F16)), "a scale of shape [6], strides [1]"),
        (normalisation(factors=BF16), "a scale of bfloat16"),
        (normalisation(bias=contiguous("b", 24)), "a bias of float32"),
    ],
)  # fmt: skip
def test_what_cudnn_does_not_compute_has_a_reason(call, reason):
    assert cudnn.expressible(call) == reason


@pytest.mark.parametrize("version", ["1.18.9", "1.27.0", "1.31.0", "0.9", ""])
def test_a_frontend_of_another_version_is_refused(version):
    with pytest.raises(BackendError, match=r"expected 1\.19 or later, below 1\.27"):
        cudnn_library.check_version(version)


@needs_cudnn
@pytest.mark.parametrize("call", GRAPHS, ids=cudnn.described)
def test_cudnn_takes_the_graphs(call):
    module = importlib.import_module("cudnn")
    stated = cudnn_library.state(module, call, sm_version=90)
    stated.graph.validate()
    for tensor, view in zip(stated.tensors, cudnn.views_of(call), strict=True):
        real = [(d, s) for d, s in zip(tensor.get_dim(), tensor.get_stride(), strict=True) if d != 1]
        if view.rank > 1:
            pairs = zip(view.shape, view.strides, strict=True)
            assert real == [(d, s) for d, s in pairs if d != 1 and s != 0]
    for tensor, number in stated.numbers.items():
        assert tensor.get_is_pass_by_value() and number.value == pytest.approx(call.epsilon)


def test_the_first_plan_that_can_be_built_is_run_or_the_one_that_is_named():
    module = Plans(["slow", "quick", "other"], broken=["slow"])
    library = cudnn_library.Cudnn(module)
    call = convolution()
    places = {"x": 1024, "w": 2048, "y": 4096}
    prepared = library.prepare(call, lambda view: places[view.buffer])
    assert (prepared.plan, prepared.workspace) == ("cudnn 92800 quick", 1001)
    named = library.prepare(call, lambda view: places[view.buffer], "cudnn 92800 other")
    named.launch(55, 9999)
    assert module.done[-2:] == [("stream", 7, 55), ("execute", {"x": 1024, "w": 2048, "": 4096}, 9999, "other", 7)]
    assert library.plans(call, lambda view: 0) == ("cudnn 92800 quick", "cudnn 92800 other")
    with pytest.raises(BackendError, match="has no plan 'cudnn 92800 slow' for a convolution of float16"):
        library.prepare(call, lambda view: 0, "cudnn 92800 slow")
    with pytest.raises(BackendError, match="the plan is of cuDNN 1, here is 92800"):
        library.prepare(call, lambda view: 0, "cudnn 1 quick")
    library.close()
    library.close()
    assert module.done.count(("destroy", 7)) == 1


def test_a_call_that_cudnn_does_not_support_has_no_plan():
    library = cudnn_library.Cudnn(Plans(["one"], supported=False))
    assert library.plans(convolution(), lambda view: 0) == ()
    with pytest.raises(BackendError, match="cuDNN 92800 has no plan for a convolution"):
        library.prepare(convolution(), lambda view: 0)
    with pytest.raises(BackendError, match=r"cuDNN does not compute .*: element types float64"):
        library.prepare(convolution(dtype=F64), lambda view: 0)


@pytest.mark.parametrize(
    ("call", "unwanted"),
    [
        (convolution(), [1, 2]),
        (convolution(dtype=F32), [1, 2, 3]),
        (convolution(dtype=F32, arithmetic="tf32"), [1, 2]),
    ],
)
def test_narrower_arithmetic_is_used_only_where_it_is_asked_for(call, unwanted):
    module = Plans(["one"])
    cudnn_library.Cudnn(module).prepare(call, lambda view: 0)
    assert ("unwanted", unwanted) in module.done


def test_a_number_is_read_from_the_host_when_a_plan_is_run():
    module = Plans(["one"])
    call = normalisation(epsilon=0.125)
    places = {"x": 1024, "s": 2048, "b": 3072, "y": 4096}
    prepared = cudnn_library.Cudnn(module).prepare(call, lambda view: places[view.buffer])
    for shift in (0, 7):
        prepared.launch(55, 9999)
        (_, given, *_) = module.done[-1]
        assert {name: given[name] for name in ("x", "scale", "bias", "")} == {
            "x": 1024 + shift, "scale": 2048 + shift, "bias": 3072 + shift, "": 4096 + shift
        }  # fmt: skip
        assert ctypes.c_float.from_address(given["epsilon"]).value == 0.125
        prepared = prepared.at(call, lambda view: places[view.buffer] + 7)


def test_cudnn_is_told_how_tensors_are_aligned():
    part = image("x", 1, 9, 5, 5).sliced(1, 1, 8)  # begins 50 bytes after what begins at a multiple of 256
    call = Convolution(part, image("w", 8, 8, 3, 3), image("y", 1, 8, 3, 3), (1, 1), (0, 0, 0, 0), (1, 1), 1)
    stated = cudnn_library.state(Plans([]), call, handle=7)
    assert [tensor.alignment for tensor in stated.tensors] == [2, 16, 16]
