"""What cuBLASLt is asked for, and its plans as text, and which names of libraries are used; no GPU is needed.

Products are computed here as cuBLASLt would from what it is asked for. Where nvmath is installed its descriptors are
made for real, behind a stub where there is no driver.
"""

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat.errors import BackendError
from eqsat.language.terms.types import DType
from eqsat.runtime.cuda.libraries import cublaslt, cublaslt_library, cudnn_library
from eqsat.runtime.cuda.libraries.calls import Matmul
from eqsat.runtime.cuda.libraries.emulated import compute
from eqsat.runtime.kernels.view import View
from eqsat.runtime.programs.arrays import strided
from tests.support.library_standins import Preferences

F32, F16, BF16, F64 = DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16, DType.FLOAT64


def contiguous(name, *shape, dtype=F32):
    return View.of(name, dtype, shape)


def product(a=(4, 5), b=(5, 6), y=(4, 6), dtype=F32, **options):
    return Matmul(*(contiguous(n, *s, dtype=dtype) for n, s in zip("aby", (a, b, y), strict=True)), **options)


def computed(asked, arrays):
    """What cuBLASLt computes when it is asked for a product: matrices in columns, found by their first elements."""

    def element(matrix, i, j, batch):
        place = matrix.view.offset + i + j * matrix.ld + batch * matrix.step
        return arrays[matrix.view.buffer], place

    def matrix(m, batch):
        held = np.empty((m.rows, m.columns))
        for i, j in np.ndindex(*held.shape):
            array, place = element(m, i, j, batch)
            held[i, j] = array[place]
        return held.T if m.turned else held

    for batch in range(asked.batch):
        left, right = matrix(asked.left, batch), matrix(asked.right, batch)
        assert (left.shape, right.shape) == ((asked.rows, asked.inner), (asked.inner, asked.columns))
        assert (asked.result.rows, asked.result.columns) == (asked.rows, asked.columns)
        for (i, j), value in np.ndenumerate(left @ right):
            array, place = element(asked.result, i, j, batch)
            array[place] = value


@st.composite
def views(draw, name, shape):
    """A view of a larger tensor in some order of its axes, with gaps and an offset, perhaps repeated along a batch."""
    order = list(range(len(shape)))
    if draw(st.booleans()):
        order[-2:] = order[-1], order[-2]
    if draw(st.booleans()):
        order = draw(st.permutations(order))
    pads = [draw(st.sampled_from([0, 0, 0, 3])) for _ in shape]
    view = View.of(name, F32, [s + p for s, p in zip(shape, pads, strict=True)], order)
    for axis, (size, pad) in enumerate(zip(shape, pads, strict=True)):
        view = view.sliced(axis, draw(st.integers(0, pad)), size)
    if name != "y" and len(shape) > 2 and draw(st.booleans()):
        view = view.sliced(0, 0, 1).broadcast_to(shape)
    return view


@st.composite
def products(draw):
    batch = draw(st.lists(st.integers(1, 3), max_size=2))
    m, k, n = (draw(st.integers(1, 4)) for _ in range(3))
    a, b, y = (draw(views(name, (*batch, *s))) for name, s in (("a", (m, k)), ("b", (k, n)), ("y", (m, n))))
    return Matmul(a, b, y)


@given(products())
@settings(max_examples=300)
def test_what_cublaslt_is_asked_for_is_the_product(call):
    asked = cublaslt.product_of(call)
    if isinstance(asked, str):
        assert asked == cublaslt.expressible(call)
        return
    rng = np.random.default_rng(0)
    memory = {v.buffer: rng.standard_normal(v.extent[1] // 4 + 9).astype(np.float32) for v in (call.a, call.b)}
    memory["y"] = np.full(call.result.extent[1] // 4 + 9, -7, np.float32)
    wanted = {name: array.copy() for name, array in memory.items()}
    compute(call, lambda view: strided(wanted[view.buffer].view(np.uint8), view))
    computed(asked, memory)
    np.testing.assert_allclose(memory["y"], wanted["y"], rtol=1e-4, atol=1e-5)
    for matrix in (asked.left, asked.right, asked.result):
        assert matrix.ld >= matrix.rows


def turned(view):
    return view.permuted((*range(view.rank - 2), view.rank - 1, view.rank - 2))


def of(a, y=None, **options):
    """A product of a and a matrix in rows."""
    return Matmul(a, contiguous("b", 5, 6), y or contiguous("y", 4, 6), **options)


def test_matrices_in_rows_in_columns_and_with_gaps_are_expressible():
    plain = product()
    wide = contiguous("w", 8, 16)
    for call in (
        plain,
        Matmul(turned(contiguous("a", 5, 4)), turned(contiguous("b", 6, 5)), contiguous("y", 4, 6)),
        Matmul(contiguous("a", 4, 5), contiguous("b", 5, 6), turned(contiguous("y", 6, 4))),
        Matmul(wide.sliced(0, 2, 4).sliced(1, 3, 5), contiguous("b", 5, 6), wide.sliced(0, 0, 4).sliced(1, 8, 6)),
        product((2, 3, 4, 5), (2, 3, 5, 6), (2, 3, 4, 6), dtype=BF16),
    ):
        assert cublaslt.expressible(call) is None


def test_rows_of_a_batch_by_one_matrix_are_one_product():
    b = contiguous("b", 5, 6).broadcast_to((2, 3, 5, 6))
    asked = cublaslt.product_of(Matmul(contiguous("a", 2, 3, 4, 5), b, contiguous("y", 2, 3, 4, 6)))
    assert (asked.batch, asked.rows, asked.columns) == (1, 6, 24)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (product(dtype=DType.INT32), "operands of int32 and int32"),
        (Matmul(contiguous("a", 4, 5), contiguous("b", 5, 6), contiguous("y", 4, 6, dtype=F16)), "a result of float16"),
        (product(dtype=F16, arithmetic="tf32"), "arithmetic 'tf32' on float16"),
        (product(dtype=F64, epilogue="relu"), "an epilogue in float64"),
        (product(epilogue="bias"), "epilogue 'bias' without a bias"),
        (product(epilogue="gelu", bias=contiguous("c", 6)), "epilogue 'gelu' with a bias"),
        (product(epilogue="bias", bias=contiguous("c", 6, dtype=F16)), "a bias of float16"),
        (product(epilogue="bias", bias=contiguous("c", 12).sliced(0, 0, 6, 2)), "strides \\[2\\]"),
        (product((4, 0), (0, 6)), "nothing to multiply"),
        (product((5,), (5, 6), (6,)), "operands of rank 1 and 2"),
        (of(contiguous("a", 4, 10).sliced(1, 0, 5, 2)), "a of shape .* none of which is 1"),
        (of(contiguous("a", 4, 5).sliced(0, 3, 4, -1)), "negative strides"),
        (of(contiguous("a", 1, 5).broadcast_to((4, 5))), "a of shape .* none of which is 1"),
        (
            Matmul(
                contiguous("a", 2, 4, 3, 5).permuted((0, 2, 1, 3)),
                contiguous("b", 2, 3, 5, 6),
                contiguous("y", 2, 3, 4, 6),
            ),
            "batches \\[2, 3\\]",
        ),
        (
            of(contiguous("a", 4, 5), turned(contiguous("y", 6, 4)), bias=contiguous("c", 6), epilogue="bias"),
            "a bias by columns",
        ),
    ],
)  # fmt: skip
def test_what_cublaslt_does_not_compute_has_a_reason(call, reason):
    assert re.search(reason, cublaslt.expressible(call))


def test_an_algorithm_survives_as_text_and_is_refused_by_another_version():
    algorithm = bytes(range(64))
    text = cublaslt.plan_text(algorithm, 4096, "130100")
    assert cublaslt.parse_plan(text, "130100") == (algorithm, 4096)
    with pytest.raises(BackendError, match=r"the plan is of cuBLASLt 130100, here is 130200\n.*\n  measure again"):
        cublaslt.parse_plan(text, "130200")
    for broken in ("", "cudnn 130100 ff 1", text[:-6], text.replace("0001", "00zz"), f"cublaslt 130100 {'f' * 128} x"):
        with pytest.raises(BackendError, match="is no plan of cuBLASLt's"):
            cublaslt.parse_plan(broken, "130100")


needs_cudnn = pytest.mark.skipif(
    importlib.util.find_spec("cudnn") is None, reason="cudnn is not installed: make test-cuda"
)
needs_nvmath = pytest.mark.skipif(
    importlib.util.find_spec("nvmath") is None, reason="nvmath is not installed: make test-cuda"
)


@needs_nvmath
def test_cublaslt_takes_the_descriptors(tmp_path):
    """In a process of its own: its library looks for the driver when it is loaded."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    stub = tmp_path / "stub.c"
    stub.write_text("int cuDriverGetVersion(int* v) { *v = 13000; return 0; }")
    library = tmp_path / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, stub], check=True)
    code = """
        import ctypes
        import numpy as np
        from nvmath.bindings import cublasLt as lt
        from eqsat.language.terms.types import DType
        from eqsat.runtime.cuda.libraries.calls import Matmul
        from eqsat.runtime.cuda.libraries.cublaslt_library import Descriptors
        from eqsat.runtime.kernels.view import View

        half = DType.BFLOAT16
        b = View.of("b", half, (4, 7, 6)).permuted((0, 2, 1))
        bias = View.of("c", half, (7,))
        call = Matmul(View.of("a", half, (4, 5, 6)), b, View.of("y", half, (4, 5, 7)), bias, 0.5, "gelu_bias")
        made = Descriptors(lt, call, lambda view: 4096)

        def read(handle, attribute, get, dtype_of):
            held, written = np.zeros(1, dtype_of(attribute)), np.zeros(1, np.uint64)
            get(handle, attribute, held.ctypes.data, held.nbytes, written.ctypes.data)
            return int(held[0])

        names = lt.MatmulDescAttribute
        wanted = dict(TRANSA=1, TRANSB=0, EPILOGUE=36, BIAS_POINTER=4096, BIAS_DATA_TYPE=14, COMPUTE_TYPE=68)
        for name, value in wanted.items():
            got = read(made.matmul, names[name], lt.matmul_desc_get_attribute, lt.get_matmul_desc_attribute_dtype)
            assert got == value, name
        names = lt.MatrixLayoutAttribute
        fields = ("TYPE", "ROWS", "COLS", "LD", "BATCH_COUNT", "STRIDED_BATCH_OFFSET")
        shapes = [(14, 6, 7, 6, 4, 42), (14, 6, 5, 6, 4, 30), (14, 7, 5, 7, 4, 35)]
        for layout, shape in zip(made.layouts, shapes, strict=True):
            for name, value in zip(fields, shape, strict=True):
                got = read(
                    layout, names[name], lt.matrix_layout_get_attribute, lt.get_matrix_layout_attribute_dtype
                )
                assert got == value, name
        assert made.alpha.tolist() == [0.5] and made.alpha.dtype == np.float32
        preference = made.preference()
        names = lt.MatmulPreferenceAttribute
        wanted = dict(MAX_WORKSPACE_BYTES=32 << 20, REDUCTION_SCHEME_MASK=int(lt.ReductionScheme.COMPUTE_TYPE))
        for name, value in wanted.items():
            get, dtype_of = lt.matmul_preference_get_attribute, lt.get_matmul_preference_attribute_dtype
            assert read(preference, names[name], get, dtype_of) == value, name
        lt.matmul_preference_destroy(preference)
        double = Matmul(*(View.of(n, DType.FLOAT64, (2, 2)) for n in "aby"))
        assert Descriptors(lt, double, lambda view: 0).alpha.dtype == np.float64
        made.close()
        assert not made.layouts and not made.matmul
        print("taken")
    """
    places = [str(tmp_path), os.environ.get("LD_LIBRARY_PATH", "")]
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, places))}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "taken\n", done.stderr


@pytest.mark.parametrize(("first", "alignment"), [(0, 256), (1, 2), (4, 8)])
def test_sums_are_joined_in_float32_and_the_bias_may_lie_anywhere(first, alignment):
    lt = Preferences()
    bias = contiguous("c", 12, dtype=F16).sliced(0, first, 6)
    made = cublaslt_library.Descriptors(lt, product(dtype=F16, bias=bias, epilogue="bias"), lambda view: 4096)
    made.preference()
    assert lt.stated == {
        "MAX_WORKSPACE_BYTES": 32 << 20,
        "REDUCTION_SCHEME_MASK": 2,
        **{f"MIN_ALIGNMENT_{side}_BYTES": 256 for side in "ABC"},
        "MIN_ALIGNMENT_D_BYTES": alignment,
    }
    made.close()


def test_a_missing_library_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "nvmath.bindings.cublasLt", None)
    monkeypatch.setitem(sys.modules, "cudnn", None)
    with pytest.raises(BackendError, match=r"nvmath is not installed\n.*\n  pip install 'eqsat\[cuda13\]'"):
        cublaslt_library.library()
    with pytest.raises(BackendError, match=r"cudnn is not installed\n.*\n  pip install 'eqsat\[cuda13\]'"):
        cudnn_library.library()


@pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="cupy is not installed: make test-cuda")
def test_arrays_of_cupys_have_what_comprehensions_ask_of_them():
    cupy = importlib.import_module("cupy")
    assert (cupy.ndarray.__module__.partition(".")[0], cupy.ndarray.__name__) == ("cupy", "ndarray")
    assert all(callable(getattr(cupy.ndarray, name)) for name in ("get", "__dlpack__", "__dlpack_device__"))
    assert callable(cupy.asarray)
