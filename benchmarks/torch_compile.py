"""eqsat beside PyTorch's eager mode, Inductor and ONNX Runtime on modules of PyTorch, on one thread.

`python -m benchmarks.torch_compile [MODEL …]`, in an environment with the extra "torch" (as `make test-torch` makes)
and a C++ compiler. Each model is built with random weights in a process of its own; all programs of it are timed in one
interleaved run. A second process, which finds the caches of the first, shows how long a second start takes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.rows import document
from eqsat.runtime.measure import Timings, interleaved

RESULTS = Path(__file__).parent / "results"
_ROUNDS, _SECONDS, _LIMIT = 60, 40.0, 180.0
#: One-sided confidence of each of two bounds, which are 95 % together.
_CONFIDENCE = 0.975
_EAGER = "eager"
#: The rows of the table, in its order.
PROGRAMS = (_EAGER, "Inductor", "ONNX Runtime", "eqsat.optimize", 'torch.compile("eqsat")')


def _tokens(length: int = 128) -> dict[str, Any]:
    import torch

    return {"input_ids": torch.randint(0, 1000, (1, length))}


def _pixels() -> dict[str, Any]:
    import torch

    return {"pixel_values": torch.randn(1, 3, 224, 224)}


def _bert() -> Any:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(num_hidden_layers=4)), _tokens()


def _vit() -> Any:
    from transformers import ViTConfig, ViTModel

    return ViTModel(ViTConfig(num_hidden_layers=4)), _pixels()


def _resnet() -> Any:
    from transformers import ResNetConfig, ResNetForImageClassification

    return ResNetForImageClassification(ResNetConfig()), _pixels()


def _mobilenet() -> Any:
    from transformers import MobileNetV2Config, MobileNetV2Model

    return MobileNetV2Model(MobileNetV2Config()), _pixels()


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=8000,
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        use_cache=False,
    )
    return LlamaForCausalLM(config), _tokens()


MODELS: Mapping[str, Callable[[], Any]] = {
    "BERT, 4 layers of base": _bert,
    "ViT, 4 layers of base": _vit,
    "ResNet-50": _resnet,
    "MobileNet-v2": _mobilenet,
    "Llama, 4 layers of 512": _llama,
}


@click.command()
@click.argument("models", nargs=-1)
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULTS / "torch.json")
@click.option("--one", hidden=True, help="Print the row of a model that is run in this process.")
def main(models: tuple[str, ...], target: Path, one: str | None) -> None:
    """Compare the programs on all models or those named; rows of others stay, if of this machine and versions."""
    if one is not None:
        click.echo("ROW " + json.dumps(_row(one)))
        return
    for name in models or MODELS:
        row = _both_starts(name)
        target.write_text(json.dumps(_joined(row, target), indent=1) + "\n")
        _show(row)


def _joined(row: dict[str, Any], target: Path) -> dict[str, Any]:
    """The file with a row in the place of an earlier one of the same model."""
    now = _document([row])
    earlier = json.loads(target.read_text(encoding="utf-8")) if target.exists() else now
    conditions = [name for name in now if name not in ("when", "models")]
    if any(earlier.get(name) != now[name] for name in conditions):
        return now
    rows = {each["model"]: each for each in (*earlier["models"], row)}
    return {**now, "models": [rows[name] for name in MODELS if name in rows]}


def _document(rows: list[dict[str, Any]]) -> dict[str, Any]:
    import torch
    import transformers

    whole = document(rows)
    whole["versions"] |= {"torch": torch.__version__, "transformers": transformers.__version__}
    return {**whole, "threads": 1, "time_limit": _LIMIT}


def _both_starts(name: str) -> dict[str, Any]:
    """The row of a model, with the seconds until a first call returned, without and with caches."""
    with tempfile.TemporaryDirectory(prefix="eqsat-torch-") as folder:
        caches = {"EQSAT_RESULTS": f"{folder}/results", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}
        first, second = (_in_process(name, caches) for _ in range(2))
    for program in PROGRAMS:
        first["programs"][program]["second_start"] = second["programs"][program]["start"]
    return first


def _in_process(name: str, caches: Mapping[str, str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.torch_compile", "--one", name]
    ran = subprocess.run(command, env={**os.environ, **caches}, stdout=subprocess.PIPE, text=True, check=True)
    line = next(line for line in ran.stdout.splitlines() if line.startswith("ROW "))
    row: dict[str, Any] = json.loads(line[len("ROW ") :])
    return row


def _row(name: str) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    module, inputs = MODELS[name]()
    _enliven(module.eval())
    with torch.no_grad():
        expected = _first(module(**inputs))
        programs, parts = _programs(module, inputs)
        calls: dict[str, Callable[[], Any]] = {}
        for program, make in programs.items():
            begin = time.perf_counter()
            calls[program] = make()
            made = _first(calls[program]())
            parts[program]["start"] = round(time.perf_counter() - begin, 2)
            error = torch.linalg.vector_norm(torch.as_tensor(made) - expected) / torch.linalg.vector_norm(expected)
            parts[program]["difference"] = float(f"{float(error):.1e}")
        timings = interleaved(calls, _ROUNDS, clock="thread", time_limit=_SECONDS)
    for program in PROGRAMS:
        parts[program] |= _figures(timings, program)
    return {"model": name, "rounds": timings.rounds, "programs": parts}


def _enliven(module: Any) -> None:
    """Weights by which values neither vanish nor grow from layer to layer, and normalisations that do something."""
    import torch

    for part in module.modules():
        if isinstance(part, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(part.weight)
        if isinstance(part, torch.nn.BatchNorm2d):
            part.running_var.uniform_(0.75, 1.25)


def _programs(
    module: Any, inputs: Mapping[str, Any]
) -> tuple[dict[str, Callable[[], Callable[[], Any]]], dict[str, dict[str, Any]]]:
    """Functions that make each program, and what more there is to say of each."""
    import torch

    import eqsat

    said: dict[str, dict[str, Any]] = {program: {} for program in PROGRAMS}

    def compiled(backend: str, **more: Any) -> Callable[[], Any]:
        torch.compiler.reset()
        program = torch.compile(module, backend=backend, **more)
        return lambda: program(**inputs)

    def optimised() -> Callable[[], Any]:
        result = eqsat.optimize(module, dict(inputs), time_limit=_LIMIT)
        said["eqsat.optimize"] |= {"kept": result.report.kept, "found_again": bool(result.report.found_again)}
        return lambda: result(**inputs)

    return {
        _EAGER: lambda: lambda: module(**inputs),
        "Inductor": lambda: compiled("inductor"),
        "ONNX Runtime": lambda: _session(module, inputs),
        "eqsat.optimize": optimised,
        'torch.compile("eqsat")': lambda: compiled("eqsat", options={"time_limit": _LIMIT}),
    }, said


def _session(module: Any, inputs: Mapping[str, Any]) -> Callable[[], Any]:
    """ONNX Runtime at the level "all" on PyTorch's own export, called with arrays."""
    import onnxruntime
    import torch

    with tempfile.TemporaryDirectory(prefix="eqsat-torch-") as folder:
        path = Path(folder) / "model.onnx"
        torch.onnx.export(module, (), path, kwargs=dict(inputs), dynamo=True, verbose=False)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feeds = {name: tensor.numpy() for name, tensor in inputs.items()}
    return lambda: session.run(None, feeds)


def _first(made: Any) -> Any:
    """The first tensor of nested outputs."""
    from torch.utils import _pytree as pytree

    return pytree.tree_flatten(made)[0][0]


def _figures(timings: Timings, program: str) -> dict[str, Any]:
    """The median in milliseconds, and the time over eager mode's and over ONNX Runtime's with 95 % bounds."""
    row: dict[str, Any] = {"ms": round(1e3 * timings.median(program), 3)}
    for name, other in (("eager", _EAGER), ("onnxruntime", "ONNX Runtime")):
        if other != program:
            low = 1 / timings.ratio_bound(other, program, _CONFIDENCE)
            high = timings.ratio_bound(program, other, _CONFIDENCE)
            row[f"over_{name}"] = [round(x, 4) for x in (timings.ratio(program, other), low, high)]
    return row


def _show(row: Mapping[str, Any]) -> None:
    shown = Table(title=f"{row['model']}, {row['rounds']} rounds")
    for column in ("program", "ms", "of eager", "of ONNX Runtime", "first start s", "second start s", "difference"):
        shown.add_column(column, justify="left" if column == "program" else "right")
    for program, figures in row["programs"].items():
        ratios = [figures.get(key) for key in ("over_eager", "over_onnxruntime")]
        texts = ["" if r is None else f"{r[0]:.3f} [{r[1]:.3f}, {r[2]:.3f}]" for r in ratios]
        starts = [f"{figures[key]:.1f}" for key in ("start", "second_start")]
        shown.add_row(program, f"{figures['ms']:.2f}", *texts, *starts, f"{figures['difference']:.0e}")
    Console().print(shown)


if __name__ == "__main__":
    main()
