"""The benchmark models as GPU programs: memory, launches, kernels compiled by NVRTC, and small ones run whole."""

from __future__ import annotations

import re
from collections.abc import Collection

import numpy as np
import pytest
from onnx import ModelProto

from benchmarks.models import MODELS, load
from benchmarks.models.nasnet import nasnet_a
from benchmarks.models.nasrnn import nasrnn
from benchmarks.models.sru import sru_text_classifier, sru_translation
from benchmarks.models.taso_bert import taso_bert
from benchmarks.random_graphs import random_inputs
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.interpret import run
from eqsat.language.onnx.read.importer import load as read
from eqsat.language.terms import Graph, Sym, TensorType
from eqsat.runtime.cuda.compiler.limits import LaunchLimits
from eqsat.runtime.cuda.compiler.nvrtc import compile_cubin
from eqsat.runtime.cuda.libraries.calls import Normalisation
from eqsat.runtime.cuda.libraries.substitute import source_of
from eqsat.runtime.cuda.program.lowering import program_of
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.programs.arena import arrange, check
from eqsat.runtime.programs.launches import Fallback, Launch
from eqsat.testing.cuda.host import HostMachine

#: What a kernel of these models may take at most, of 255: with 64, a multiprocessor still holds 1024 threads.
MOST_REGISTERS = 64

SMALL = {
    "sru_text_classifier": lambda: sru_text_classifier(1, 0, steps=3, hidden=8),
    "sru_translation": lambda: sru_translation(1, 0, steps=3, hidden=8, vocabulary=5),
    "nasrnn": lambda: nasrnn(1, 0, steps=2, hidden=8),
    "nasnet_a": lambda: nasnet_a(1, 0, normal_cells=1),
    "taso_bert": lambda: taso_bert(1, 0, layers=1),
    "light_squeezenet": lambda: load("light_squeezenet"),
    "llama": lambda: load("llama"),
    "llama_dynamic": lambda: load("llama_dynamic"),
}


def sizes_of(graph: Graph) -> dict[str, int]:
    """A size for every named dim: sequences are longer than batches."""
    types = [graph.type(name) for name in graph.inputs]
    dims = [d for t in types if isinstance(t, TensorType) for d in t.dims if isinstance(d, Sym)]
    return {name: 7 if "seq" in name else 2 for d in dims for name in d.names()}


#: Registers and static shared memory of kernels that were compiled, by text and architecture: models share them.
COMPILED: dict[tuple[str, str], tuple[int, int]] = {}
#: What is said of one entry: the number of its namespace, bytes that spill, registers and shared memory.
ENTRY = re.compile(
    r"Compiling entry function '_ZN\d+n(\d+)_.*?"
    r"(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers(?:[^\n]*?(\d+) bytes smem)?",
    re.S,
)


def check_kernels(sources: Collection[KernelSource], architecture: str) -> None:
    """No kernel spills, takes more registers than it may, or asks for more than the architecture has.

    NVRTC compiles them together in a third of the time that it takes for one after the other: each in a namespace of
    its own, since they share names.
    """
    codes = sorted({source.code for source in sources})
    fresh = [code for code in codes if (code, architecture) not in COMPILED]
    text = "\n".join(
        f"namespace n{number}_ {{\n{code}\n}}".replace('extern "C"', "") for number, code in enumerate(fresh)
    )
    log = compile_cubin(text, arch=architecture).log if fresh else ""
    reports = [tuple(int(part or 0) for part in found) for found in ENTRY.findall(log)]
    assert sorted(number for number, *_ in reports) == list(range(len(fresh)))
    for number, stores, loads, registers, shared in reports:
        assert stores == loads == 0, fresh[number]
        assert registers <= MOST_REGISTERS, fresh[number]
        COMPILED[fresh[number], architecture] = registers, shared
    limits = LaunchLimits.of(architecture)
    for source in sources:
        registers, static = COMPILED[source.code, architecture]
        limits.check(source, registers=registers, static=static)


def generated(launch: Launch) -> KernelSource | None:
    """The kernel of a launch, or that of a normalisation, which runs where the library is not measured to be faster."""
    if isinstance(launch.work, Normalisation):
        found = source_of(launch.work)
        assert found is not None
        return found[0]
    return launch.work if isinstance(launch.work, KernelSource) else None


#: 48 layers are the kernels of 12, and four times the launches.
TRIED = [name for name in MODELS if name != "bert_48_layers"]


@pytest.mark.parametrize("name", TRIED)
def test_memory_launches_and_kernels_of_a_benchmark_model(name: str) -> None:
    graph = read(load(name))
    program = program_of(graph, sizes_of(graph))
    assert not [launch.label for launch in program.launches if isinstance(launch.work, Fallback)]
    assert len(program.launches) < len(graph.nodes)
    arrangement = arrange(program)
    check(program, arrangement)
    assert arrangement.arena <= 1.1 * arrangement.bound
    pytest.importorskip(
        "cuda.bindings.nvrtc", reason="to compile its kernels: pip install cuda-bindings nvidia-cuda-nvrtc"
    )
    sources = [source for source in map(generated, program.launches) if source is not None]
    for architecture in ("sm_80", "sm_90"):
        check_kernels(sources, architecture)


@pytest.mark.parametrize("name", SMALL)
def test_a_model_run_on_the_processor_as_a_gpu_would(name: str) -> None:
    compare(SMALL[name](), ("cublaslt", "cudnn"))


@pytest.mark.parametrize("name", ["sru_text_classifier", "nasrnn", "taso_bert", "llama_dynamic"])
def test_a_model_run_so_without_libraries(name: str) -> None:
    compare(SMALL[name](), ())


def compare(model: ModelProto, libraries: tuple[str, ...]) -> None:
    """Runs a model both ways."""
    graph = read(model)
    sizes = sizes_of(graph)
    program = program_of(graph, sizes, libraries=libraries)
    inputs = random_inputs(graph, sizes, 0)
    made = HostMachine(program, arrange(program)).run(inputs)
    for output, wanted in run(graph, inputs, Floats(wide=True)).items():
        scale = np.linalg.norm(wanted)
        assert np.linalg.norm(made[output].astype(np.float64) - wanted) <= 1e-5 * scale
