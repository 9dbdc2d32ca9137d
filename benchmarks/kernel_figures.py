"""What generated CUDA kernels take, beside those of another revision: registers, spills and accesses of 16 bytes.

`python -m benchmarks.kernel_figures write before.json` there, then `python -m benchmarks.kernel_figures compare
before.json` here. Kernels are those of the benchmark models and of random graphs and groups; those with the same text
are counted, and not compiled.
"""

from __future__ import annotations

import importlib
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.models import MODELS, load
from benchmarks.random_graphs import RandomGraph
from eqsat.language.onnx.read.importer import load as read
from eqsat.language.ops import spec
from eqsat.language.terms import Attrs, Graph, Node, Sym, TensorType
from eqsat.runtime.cuda.compiler.nvrtc import compile_cubin
from eqsat.runtime.cuda.libraries.calls import Normalisation
from eqsat.runtime.cuda.libraries.substitute import source_of
from eqsat.runtime.cuda.program.lowering import program_of
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.prelude import prelude
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.templates.codegen import generate
from eqsat.runtime.kernels.view import View

RESULT = Path(__file__).parent / "results" / "kernel_figures.json"
ARCHITECTURES = ("sm_80", "sm_90")
#: Kernels that NVRTC compiles at once, which takes a third of the time of one after the other.
TOGETHER = 40
#: Models whose kernels are those of others.
_REPEATED = {"bert_48_layers"}
_REPORT = re.compile(
    r"Compiling entry function '_ZN\d+n(\d+)_.*?"
    r"(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers",
    re.S,
)
_ENTRY = re.compile(r"\.visible \.entry _ZN\d+n(\d+)_")
#: Accesses of global memory in PTX, with the number of elements and their bits.
_ACCESS = re.compile(r"\b(?:ld|st)\.global\S*?(?:\.v(\d))?\.[bfsu](\d+)\b")


@dataclass(frozen=True)
class KernelFigures:
    """What a kernel takes on an architecture, and its accesses of 16 bytes."""

    registers: int
    spill_bytes: int
    widest_accesses: int


class _Drawn:
    """Operators and their operands, of which a group is made."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.dtype = self.rng.choice(("float32", "float32", "float16", "bfloat16", "float64", "int8"))
        self.types: dict[str, TensorType] = {}
        self.nodes: list[Node] = []

    def grouped(self, results: Sequence[str]) -> Group:
        """The group of all operators, whose operands and results are whole buffers."""
        views = {name: View.of(name, type.dtype, type.static) for name, type in self.types.items()}
        made = {name for node in self.nodes for name in node.outputs}
        operands = {name: view for name, view in views.items() if name not in made}
        return Group(tuple(self.nodes), self.types, operands, {name: views[name] for name in results})

    def operand(self, name: str, shape: Sequence[int]) -> str:
        """A tensor in memory."""
        self.types[name] = TensorType.of(self.dtype, tuple(shape))
        return name

    def add(self, op: str, *inputs: str, **attrs: Any) -> str:
        """The first result of an operator."""
        complete = spec(op).complete(attrs)
        types = spec(op).result_types([self.types[v] for v in inputs], complete)
        names = tuple(f"v{len(self.nodes)}_{place}" for place in range(len(types)))
        self.types |= zip(names, types, strict=True)
        self.nodes.append(Node(op, inputs, names, Attrs(complete)))
        return names[0]

    def beside(self, value: str) -> str:
        """An operand that broadcasts to a value."""
        return self.operand("b", [n if self.rng.random() < 0.7 else 1 for n in self.types[value].static])


class _Transposed(_Drawn):
    """A group of an operand that is read across its result, alone or with others, or of results of two shapes."""

    def group(self) -> Group:
        """The group."""
        rng = self.rng
        shape = tuple(rng.choice((2, 8, 20, 32, 33, 63, 64, 70, 96)) for _ in range(rng.randint(2, 4)))
        perm = tuple(rng.sample(range(len(shape)), len(shape)))
        self.operand("x", shape)
        made = self.add("neg", "x") if rng.random() < 0.4 else "x"
        results = [self.add("transpose", made, perm=perm)]
        if rng.random() < 0.5:
            results = [self.add("add", results[0], self.beside(results[0]))]
        if rng.random() < 0.4:
            cut = {"starts": (1,), "ends": (shape[0] - 1,), "axes": (0,), "steps": None}
            results.append(self.add("slice", "x", **cut) if shape[0] > 2 else self.add("abs", "x"))
        return self.grouped(results)


#: Operators along one axis, along several, on planes of images, and on their windows.
_PLACED = ("argmax", "argmin", "cumsum", "topk")
_BY_AXIS = ("softmax", "log_softmax", "hardmax", "lp_norm", "layer_norm", "rms_norm", *_PLACED)
_BY_AXES = ("reduce_sum", "reduce_mean", "reduce_max", "reduce_l2", "reduce_log_sum_exp", "mvn")
_BY_PLANE = ("instance_norm", "group_norm", "lrn", "global_avg_pool", "global_max_pool", "max_pool", "avg_pool", "conv")
_OF_INTEGERS = ("reduce_sum", "reduce_max", "max_pool", "matmul", *_PLACED)


class _Around(_Drawn):
    """A group of an operator along rows, on windows, or of a product, with operators before and after it."""

    def group(self) -> Group:
        """The group."""
        rng = self.rng
        op = rng.choice(_OF_INTEGERS if self.dtype == "int8" else (*_BY_AXIS, *_BY_AXES, *_BY_PLANE, "matmul", "gemm"))
        planes, product = op in _BY_PLANE, op in ("matmul", "gemm")
        sizes = (2, 3, 8, 16, 17, 32) if planes else (2, 3, 8, 20, 33, 64, 70, 96, 256, 1000, 4096)
        shape = [rng.choice(sizes) for _ in range(4 if planes else 2 if product else rng.randint(1, 3))]
        self.operand("x", shape)
        inner = "x"
        if rng.random() < 0.5:
            inner = self.add("mul", "x", self.beside("x")) if rng.random() < 0.5 else self.add("relu", "x")
        made = self._core(op, inner, shape)
        results = [self.add("neg", made) if rng.random() < 0.3 else made]
        if rng.random() < 0.2 and inner != "x":
            results.append(inner)
        return self.grouped(results)

    def _core(self, op: str, x: str, shape: Sequence[int]) -> str:
        rng, rank, axis = self.rng, len(shape), self.rng.randrange(len(shape))
        if op in ("layer_norm", "rms_norm"):
            names = ("scale", "bias") if op == "layer_norm" else ("scale",)
            return self.add(op, x, *(self.operand(name, shape[axis:]) for name in names), axis=axis)
        if op in _BY_AXIS:
            return self.add(op, x, axis=axis, **({"k": min(shape[axis], 5)} if op == "topk" else {}))
        if op in _BY_AXES:
            return self.add(op, x, axes=tuple(rng.sample(range(rank), rng.randint(1, rank))))
        if op in ("matmul", "gemm"):
            return self.add(op, x, self.operand("w", (shape[1], rng.choice((8, 33, 64, 200)))))
        if op == "conv":
            window = rng.choice((1, 3))
            filters = self.operand("w", (rng.choice((8, 33)), shape[1], window, window))
            return self.add(op, x, filters, pads=(window // 2,) * 4)
        if op in ("max_pool", "avg_pool"):
            kernel = tuple(min(n, rng.choice((2, 3))) for n in shape[2:])
            return self.add(op, x, kernel=kernel, strides=(rng.choice((1, 2)),) * 2, pads=(0, rng.randint(0, 1)) * 2)
        if op in ("instance_norm", "group_norm"):
            parameters = [self.operand(name, shape[1:2]) for name in ("scale", "bias")]
            return self.add(op, x, *parameters, **({"groups": 1} if op == "group_norm" else {}))
        return self.add(op, x, **({"size": 3} if op == "lrn" else {}))


class _WideGraph(RandomGraph):
    """A random graph with sizes that packs of several elements fit into, and some that none fits into."""

    def size(self) -> Any:
        return self.rng.choice((1, 3, 8, 8, 16, 24, 33, 40))


def _graphs(seeds: int, models: Sequence[str]) -> Iterator[tuple[str, Graph]]:
    for name in models:
        graph = read(load(name))
        yield name, graph
    for seed in range(seeds):
        yield f"random {seed}", _WideGraph(seed).build(random.Random(seed).randint(4, 14))


def _sizes(graph: Graph) -> dict[str, int]:
    types = [graph.type(name) for name in graph.inputs]
    dims = [d for t in types if isinstance(t, TensorType) for d in t.dims if isinstance(d, Sym)]
    return {name: 8 for d in dims for name in d.names()}


def texts(seeds: int, models: Sequence[str]) -> dict[str, str]:
    """The kernels of models and random graphs, by the graph and the place among its launches; each text once."""
    found: dict[str, str] = {}
    for name, graph in _graphs(seeds, models):
        for libraries in ((), ("cublaslt", "cudnn")) if name in MODELS else ((),):
            program = program_of(graph, _sizes(graph), libraries=libraries)
            for number, launch in enumerate(program.launches):
                made: Any = launch.work
                if isinstance(made, Normalisation):
                    pair = source_of(made)
                    made = pair[0] if pair is not None else None
                if isinstance(made, KernelSource) and 0 not in made.grid:
                    found[f"{name} {'with' if libraries else 'without'} libraries {number}"] = made.code
    drawn = [(f"transposed {seed}", _Transposed(seed).group()) for seed in range(seeds)]
    drawn += [(f"around {seed}", _Around(seed).group()) for seed in range(4 * seeds)]
    for name, group in drawn:
        source = generate(group)
        if source is not None and 0 not in source.grid:
            found[name] = source.code
    return found


def figures(codes: Sequence[str], architecture: str) -> list[KernelFigures]:
    """The figures of kernels, in their order."""
    found: list[KernelFigures] = []
    for first in range(0, len(codes), TOGETHER):
        found += _together(codes[first : first + TOGETHER], architecture)
    return found


def _together(codes: Sequence[str], architecture: str) -> list[KernelFigures]:
    text = "\n".join(f"namespace n{n}_ {{\n{code}\n}}".replace('extern "C"', "") for n, code in enumerate(codes))
    reports = {int(number): rest for number, *rest in _REPORT.findall(compile_cubin(text, arch=architecture).log)}
    pieces = _ENTRY.split(_ptx(text, architecture.replace("sm", "compute")))[1:]
    wide = {int(number): _widest(body) for number, body in zip(pieces[::2], pieces[1::2], strict=True)}
    return [
        KernelFigures(int(registers), int(stores) + int(loads), wide[number])
        for number, (stores, loads, registers) in sorted(reports.items())
    ]


def _widest(ptx: str) -> int:
    return sum(int(count or 1) * int(bits) == 128 for count, bits in _ACCESS.findall(ptx))


def _ptx(text: str, architecture: str) -> str:
    library: Any = importlib.import_module("cuda.bindings.nvrtc")
    whole = f"{prelude()}\n{text}".encode()
    _, program = library.nvrtcCreateProgram(whole, b"kernels.cu", 0, [], [])
    options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17"]
    (status,) = library.nvrtcCompileProgram(program, len(options), options)
    if status != library.nvrtcResult.NVRTC_SUCCESS:
        raise click.ClickException(f"NVRTC makes no PTX for {architecture}: {status}")
    _, size = library.nvrtcGetPTXSize(program)
    made = b" " * size
    library.nvrtcGetPTX(program, made)
    library.nvrtcDestroyProgram(program)
    return made.decode()


def compared(before: Mapping[str, str], after: Mapping[str, str], architecture: str) -> dict[str, Any]:
    """A summary of kernels in two revisions, each pair of texts once; the worst ones by name."""
    names = [name for name in after if name in before]
    pairs: dict[tuple[str, str], str] = {}
    for name in names:
        pairs.setdefault((before[name], after[name]), name)
    changed = [(pair, name) for pair, name in pairs.items() if pair[0] != pair[1]]
    old = figures([pair[0] for pair, _ in changed], architecture)
    new = figures([pair[1] for pair, _ in changed], architecture)
    rows = list(zip((name for _, name in changed), old, new, strict=True))
    return {
        "kernels": len(pairs),
        "changed": len(changed),
        "only_before": len(before.keys() - after.keys()),
        "only_after": len(after.keys() - before.keys()),
        "registers_before": _spread([o.registers for o in old]),
        "registers_after": _spread([n.registers for n in new]),
        "more_registers": {n: [o.registers, a.registers] for n, o, a in rows if a.registers > o.registers},
        "fewer_registers": sum(a.registers < o.registers for _, o, a in rows),
        "spill_bytes": [sum(o.spill_bytes for o in old), sum(n.spill_bytes for n in new)],
        "accesses_of_16_bytes": [sum(o.widest_accesses for o in old), sum(n.widest_accesses for n in new)],
        "fewer_accesses_of_16_bytes": [n for n, o, a in rows if a.widest_accesses < o.widest_accesses],
    }


def _spread(values: Sequence[int]) -> dict[str, float]:
    return {"median": median(values), "max": max(values)} if values else {}


@click.group()
def main() -> None:
    """Figures of generated CUDA kernels, beside those of another revision."""


_SEEDS = click.option("--seeds", default=150, show_default=True, help="Random graphs.")
_MODELS = click.option("--models", default="", help="Some of them, separated by commas; all unless given.")


def _named(models: str) -> list[str]:
    return [name for name in models.split(",") if name] or [name for name in MODELS if name not in _REPEATED]


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@_SEEDS
@_MODELS
def write(file: Path, seeds: int, models: str) -> None:
    """Write the texts of all kernels."""
    file.write_text(json.dumps(texts(seeds, _named(models))), encoding="utf-8")


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--with", "with_file", type=click.Path(path_type=Path), help="Texts in place of this revision's.")
@click.option("--output", type=click.Path(path_type=Path), default=RESULT, show_default=False)
@_SEEDS
@_MODELS
def compare(file: Path, with_file: Path | None, output: Path, seeds: int, models: str) -> None:
    """Compile the kernels that differ from those in a file, both ways."""
    before = json.loads(file.read_text(encoding="utf-8"))
    after = json.loads(with_file.read_text(encoding="utf-8")) if with_file else texts(seeds, _named(models))
    made = {architecture: compared(before, after, architecture) for architecture in ARCHITECTURES}
    output.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    table = Table("", *ARCHITECTURES)
    for key in next(iter(made.values())):
        shown = [one[key] for one in made.values()]
        table.add_row(key.replace("_", " "), *(str(len(v)) if key.startswith("more") else str(v) for v in shown))
    Console().print(table)


if __name__ == "__main__":
    main()
