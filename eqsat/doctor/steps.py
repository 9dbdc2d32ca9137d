"""The steps of an examination, each of parts that are named before they begin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from eqsat.doctor import graphs, installed
from eqsat.doctor.graphs import TOLERANCE, Maker
from eqsat.doctor.observation import Observation
from eqsat.doctor.runners import GpuRunner, Ran, Runner
from eqsat.errors import EqsatError
from eqsat.language.terms import Graph
from eqsat.runtime.backend import execute
from eqsat.runtime.programs.compiled import CompiledProgram

Part = tuple[str, Callable[[Runner], Iterable[Observation]]]


@dataclass(frozen=True)
class ExaminationStep:
    """A step: its name, its parts, and whether it needs a GPU to say anything."""

    name: str
    parts: tuple[Part, ...]
    gpu_only: bool = False


def computed(name: str, make: Maker, dtype: str, runner: Runner) -> Iterator[Observation]:
    """A graph run three times, on other numbers each: its outputs beside those of NumPy in a wider type."""
    graph = make(dtype)
    draws = [graphs.inputs(graph, seed) for seed in range(3)]
    wide = "float64" if dtype == "float64" else "float32"
    ran = runner.run(graph, *draws)
    worst = max(_distance(one, wanted) for one, wanted in zip(ran, _references(make(wide), draws, wide), strict=True))
    figures = {"difference": worst, "launches": dict(ran[0].launches)}
    if not worst <= TOLERANCE[dtype]:
        text = f"differs from NumPy by {worst:.1e} of the norm, at most {TOLERANCE[dtype]:.0e} is expected"
        yield Observation(name, "failed", text, "report it with the file of this examination", figures)
        return
    yield Observation(name, "passed" if runner.on_gpu else "dry", f"{ran[0].told}, differs by {worst:.0e}", "", figures)


def _references(graph: Graph, draws: Iterable[Mapping[str, Any]], wide: str) -> Iterator[Mapping[str, Any]]:
    for one in draws:
        yield execute(graph, {name: array.astype(wide) for name, array in one.items()}, "numpy")


def _distance(ran: Ran, wanted: Mapping[str, Any]) -> float:
    """The largest distance of an output by the norm of what is wanted; NaN where one has NaN."""
    found = 0.0
    for name, right in wanted.items():
        made, right = np.asarray(ran.outputs[name], np.float64), np.asarray(right, np.float64)
        distance = float(np.linalg.norm(made - right) / max(float(np.linalg.norm(right)), 1e-30))
        found = distance if distance != distance else max(found, distance)
        if found != found:
            break
    return found


def arrays_of_others(runner: Runner) -> Iterator[Observation]:
    """Arrays of CuPy, and tensors of PyTorch where it is here, passed in and written to, on the GPU alone."""
    assert isinstance(runner, GpuRunner)
    import cupy

    graph = graphs.element_wise("float32")
    given = graphs.inputs(graph)
    wanted = execute(graph, given, "numpy")["y"]
    with closing(runner.compile(graph)) as program:
        made = program.run({name: cupy.asarray(array) for name, array in given.items()})["y"]
        yield _same("CuPy in and out", isinstance(made, cupy.ndarray), cupy.asnumpy(made), wanted)
        out = cupy.empty(wanted.shape, wanted.dtype)
        program.run_into({"y": out}, {name: cupy.asarray(array) for name, array in given.items()})
        yield _same("into an array of CuPy", True, cupy.asnumpy(out), wanted)
        yield _of_pytorch(program, given, wanted)


def _of_pytorch(program: CompiledProgram, given: Mapping[str, Any], wanted: Any) -> Observation:
    try:
        import torch
    except ImportError:
        return Observation("PyTorch", "skipped", "torch is not installed")
    if not torch.cuda.is_available():
        return Observation("PyTorch", "skipped", f"torch {torch.__version__} finds no GPU")
    tensors = {name: torch.from_numpy(array).cuda() for name, array in given.items()}
    tensor = program.run(tensors)["y"]
    return _same("PyTorch in and out", isinstance(tensor, torch.Tensor), tensor.cpu().numpy(), wanted)


def _same(name: str, is_kind: bool, made: Any, wanted: Any) -> Observation:
    difference = float(np.abs(made - wanted).max())
    if not is_kind or not difference < 1e-5:
        text = f"differs by {difference:.1e}" if is_kind else "the result is an array of another kind"
        return Observation(name, "failed", text, "report it with the file of this examination")
    return Observation(name, "passed", f"differs by {difference:.0e}")


def _looked_at(check: Callable[[], Iterable[Observation]]) -> Callable[[Runner], Iterable[Observation]]:
    return lambda runner: check()


def _parts(names: Mapping[str, Maker], dtype: str) -> tuple[Part, ...]:
    return tuple((name, partial(computed, name, make, dtype)) for name, make in names.items())


_EPILOGUES = ("bias", "relu", "gelu", "bias relu", "bias gelu", "addend")
_PRODUCTS: Mapping[str, Maker] = {
    "plain": graphs.product,
    **{epilogue: partial(graphs.product, epilogue=epilogue) for epilogue in _EPILOGUES},
    "batched": graphs.batched,
}
_CONVOLUTIONS: Mapping[str, Maker] = {
    form or "plain": partial(graphs.convolution, form=form) for form in ("", "strided", "grouped", "residual")
}
_ATTENTION: Mapping[str, Maker] = {
    form or "plain": partial(graphs.attention, form=form) for form in ("", "causal", "masked")
}
_NORMS: Mapping[str, Maker] = {form: partial(graphs.norm, form=form) for form in ("layer_norm", "rms_norm", "softmax")}
_HALVES = ("float32", "float16", "bfloat16")

#: What the machine has: looked at each time, since the rest depends on it.
INSTALLATION = (
    ExaminationStep("packages", (("packages", _looked_at(installed.packages)),)),
    ExaminationStep("GPU", (("GPU", _looked_at(installed.gpu)),)),
    ExaminationStep("compiler", (("NVRTC", _looked_at(installed.compiler)),)),
)
#: What programs are made of, and whole ones.
WORK = (
    *(ExaminationStep(f"kernels in {t}", _parts({"element-wise": graphs.element_wise}, t)) for t in TOLERANCE),
    *(ExaminationStep(f"products in {t}", _parts(_PRODUCTS, t)) for t in TOLERANCE),
    *(ExaminationStep(f"convolutions in {t}", _parts(_CONVOLUTIONS, t)) for t in _HALVES),
    *(ExaminationStep(f"attention in {t}", _parts(_ATTENTION, t)) for t in _HALVES),
    *(ExaminationStep(f"norms in {t}", _parts(_NORMS, t)) for t in _HALVES),
    ExaminationStep("streams", _parts({"four products side by side": graphs.branches}, "float32")),
    ExaminationStep("arrays of other packages", (("CuPy and PyTorch", arrays_of_others),), gpu_only=True),
    *(ExaminationStep(f"a layer of BERT in {t}", _parts({"layer": graphs.layer}, t)) for t in ("float32", "float16")),
)
STEPS = {step.name: step for step in (*INSTALLATION, *WORK)}


def examine(name: str, part: Callable[[Runner], Iterable[Observation]], runner: Runner) -> Iterator[Observation]:
    """The observations of a part; an error of any kind is one."""
    try:
        yield from part(runner)
    except EqsatError as error:
        yield Observation(name, "failed", error.what, error.remedy or "")
    except Exception as error:  # noqa: BLE001 - what packages raise is what is looked for, and is told
        yield Observation(name, "failed", f"{type(error).__name__}: {error}")
