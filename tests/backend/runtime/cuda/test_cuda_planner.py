"""Plans that cuDNN has for GPUs that are not here, asked of its own planner behind a driver that only answers."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest

from benchmarks import cudnn_plans
from eqsat.errors import BackendError
from eqsat.language.terms.types import DType
from eqsat.runtime.cuda.libraries.calls import Attention, Convolution, Normalisation
from eqsat.runtime.cuda.libraries.planner import ARCHITECTURES, CallPlan, plans_for
from eqsat.runtime.cuda.libraries.substitute import parted
from eqsat.runtime.kernels.view import View

F16 = DType.FLOAT16
NHWC = (0, 2, 3, 1)
needs_cudnn = pytest.mark.skipif(importlib.util.find_spec("cudnn") is None, reason="the extra 'cuda13': make test-cuda")


def convolution(addend=False, order=NHWC, dtype=F16):
    """A convolution of a residual layer, with its channels last or in order."""

    def view(name, *shape):
        return View.of(name, dtype, shape, order)

    options = {"bias": View.of("c", dtype, (256,)), "relu": True}
    if addend:
        options["addend"] = view("r", 1, 256, 56, 56)
    return Convolution(
        view("x", 1, 64, 56, 56), view("w", 256, 64, 1, 1), view("y", 1, 256, 56, 56),
        strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), groups=1, **options,
    )  # fmt: skip


def attention():
    shapes = {name: View.of(name, F16, (1, 12, 128, 64)) for name in "qkvy"}
    return Attention(shapes["q"], shapes["k"], shapes["v"], shapes["y"], scale=0.125)


@needs_cudnn
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_calls_of_models_have_plans(arch):
    """Channels last with a residual: no workspace, where nothing has to be converted."""
    calls = [convolution(), convolution(addend=True), attention()]
    for call, plan in zip(calls, plans_for(calls, arch), strict=True):
        assert not plan.fault, (call, plan)
        assert plan.name and plan.listed > 1
        if isinstance(call, Convolution):
            assert plan.workspace == 0


@needs_cudnn
def test_what_a_layout_costs_shows_in_the_workspace():
    last, first = plans_for([convolution(), convolution(order=(0, 1, 2, 3))], "sm_90")
    assert last.workspace == 0 < first.workspace


@needs_cudnn
def test_a_call_that_cudnn_does_not_compute_has_a_reason_and_others_have_plans():
    double = View.of("x", DType.FLOAT64, (4, 8))
    wrong = Normalisation(double, View.of("s", DType.FLOAT64, (8,)), View.of("y", DType.FLOAT64, (4, 8)), epsilon=1e-5)
    first, second = plans_for([wrong, attention()], "sm_80")
    assert "float64" in first.fault and not second.fault


def test_without_cudnn_it_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "cudnn.py").write_text("raise ImportError(\"No module named 'cudnn'\")\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(BackendError, match=r"cuDNN cannot be used: No module named 'cudnn'\n  pip install"):
        list(plans_for([attention()], "sm_90"))


def test_calls_are_told_apart_by_what_cudnn_is_told():
    one, other = convolution(), convolution(order=(0, 1, 2, 3))
    assert cudnn_plans.key_of(one) == cudnn_plans.key_of(convolution()) != cudnn_plans.key_of(other)
    renamed = Attention(*(View.of(f"{n}2", F16, (1, 12, 128, 64)) for n in "qkvy"), scale=0.125)
    assert cudnn_plans.key_of(renamed) == cudnn_plans.key_of(attention())


def test_what_is_known_is_not_asked_again_and_a_call_without_a_plan_names_its_kernel(monkeypatch):
    """With a relu it is tried without, and a kernel follows; attention has a kernel of its own, or none."""
    asked = []

    def plans(calls, arch):
        asked.append((arch, len(calls)))
        is_bare = [isinstance(call, Convolution) and not call.relu for call in calls]
        fault = CallPlan(fault="cuDNN lists no plan")
        return [CallPlan("eng1", 64, 3) if arch == "sm_80" or bare else fault for bare in is_bare]

    monkeypatch.setattr(cudnn_plans, "plans_for", plans)
    calls = {cudnn_plans.key_of(call): call for call in (convolution(), convolution(addend=True), attention())}
    known = {}
    cudnn_plans.ask(calls, known)
    cudnn_plans.ask(calls, known)
    assert asked == [
        ("sm_80", 3),
        ("sm_80", 0),
        ("sm_90", 3),
        ("sm_90", 2),
        *[(a, 0) for a in ARCHITECTURES for _ in "ab"],
    ]
    at = {arch: cudnn_plans.counted(calls, known, arch) for arch in ARCHITECTURES}
    assert at["sm_80"] == {"calls": 3, "with a plan": 3, "in two": 0, "workspace": 64}
    assert at["sm_90"] == {"calls": 3, "with a plan": 0, "in two": 2, "workspace": 64}
    first, second, third = known.values()
    assert first["plans"]["sm_90"]["second"] and second["plans"]["sm_90"]["first of two"]["name"] == "eng1"
    assert third["generated"] == cudnn_plans.generated(attention())


@needs_cudnn
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_convolution_that_is_cut_without_a_bias_has_a_plan_in_two_parts(arch):
    whole = replace(convolution(order=(0, 1, 2, 3)), bias=None)
    (plan,) = plans_for([whole], arch)
    assert plan.fault == "cuDNN lists no plan"
    parts = parted(whole)
    assert parts is not None
    (bare,) = plans_for([parts[0]], arch)
    assert not bare.fault
