"""Every figure that needs a GPU, by one command: `python -m benchmarks.gpu` on a machine that has one.

It fills the cost table of that GPU and writes it where it is shipped from, measures the results for the models as a
whole beside what was predicted of them, and compares eqsat with PyTorch, torch.compile and XLA in one interleaved run.
Where it is stopped, it goes on when it is started again. On a machine without a GPU, `--list FILE` writes what is to be
measured, and `--keys FILE` takes that list on one that has a GPU but not egglog.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click
import onnx

from benchmarks.models import MODELS, load

HERE = Path(__file__).parent
RESULTS = HERE / "results"
DEVICES = HERE.parent / "eqsat" / "costs" / "devices"

#: The models whose figures are wanted: all at batch 1, the convolutional ones at batch 16 too.
CONVOLUTIONAL = ("resnet50", "resnext50", "inception_v3", "nasnet_a")
AT_ONE = ("bert_base", *CONVOLUTIONAL, "nasrnn", "sru_text_classifier", "sru_translation", "llama")
NAMES = (*AT_ONE, *(f"{name}_batch16" for name in CONVOLUTIONAL))
#: What they are run in: float32 with its products in TF32, and float16 throughout.
PRECISIONS = ("tf32", "float16")


@click.command()
@click.option("--models", default=",".join(NAMES), show_default=False, help="Some of them, separated by commas.")
@click.option("--device", default="cuda", show_default=True, help="The GPU; nvidia-h200 with --list.")
@click.option("--list", "list_file", type=click.Path(path_type=Path), help="Only write what is to be measured.")
@click.option("--keys", "keys_file", type=click.Path(path_type=Path), help="Measure what a list names, and no more.")
@click.option("--folder", type=click.Path(path_type=Path), default=HERE / "build", help="Where the models are built.")
@click.option("--time-limit", default="", help="For measuring kernels; measuring goes on there the next time.")
def main(
    models: str, device: str, list_file: Path | None, keys_file: Path | None, folder: Path, time_limit: str
) -> None:
    """Produces all figures that need a GPU, and writes tables, summaries and raw logs into the repository."""
    RESULTS.mkdir(exist_ok=True)
    if keys_file is not None:
        present = _device(device)
        _run(["measure", "--device", device, "--keys", str(keys_file), "--export", str(DEVICES / f"{present}.jsonl")])
        return
    names = [name.strip() for name in models.split(",") if name.strip()]
    for name in names:
        if name.removesuffix("_batch16") not in MODELS:
            raise click.UsageError(f"no model {name!r}; some of {', '.join(NAMES)}")
    present = "" if list_file is not None else _device(device)
    paths = ",".join(str(_built(name, folder)) for name in names)
    measured = ["measure", "--device", device, "--models", paths, "--precision", "tf32", "--dtype", "float32,float16"]
    if list_file is not None:
        _run([*measured, "--list", str(list_file)])
        return
    limit = ["--time-limit", time_limit] if time_limit else []
    _run([*measured, *limit, "--export", str(DEVICES / f"{present}.jsonl")])
    _run(["costs", "check", "--device", present])
    _run(["costs", "check", "--device", present, "--json"], RESULTS / f"predict-{present}.json")
    bench = ["bench", "--device", device, "--models", paths, "--precision", ",".join(PRECISIONS)]
    _run([*bench, "--results", str(RESULTS)])


def _device(name: str) -> str:
    """The name of the GPU that is here, before anything takes long; an error that says what is missing."""
    from eqsat.costs.measuring.gpu import present
    from eqsat.errors import EqsatError

    try:
        return present(name).name
    except EqsatError as error:
        raise click.ClickException(str(error)) from error


def _built(name: str, folder: Path) -> Path:
    """A model as a file, built where it is not there."""
    path = folder / f"{name}.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        model = load(name) if name in MODELS else rebatched(load(name.removesuffix("_batch16")), 16)
        onnx.save(model, path, save_as_external_data=model.ByteSize() > 1 << 31, location=f"{name}.data")
    return path


def rebatched(model: onnx.ModelProto, batch: int) -> onnx.ModelProto:
    """A model of images at another batch: the first dim of its inputs and outputs, with what was inferred left out."""
    made = onnx.ModelProto.FromString(model.SerializeToString())
    weights = {tensor.name for tensor in made.graph.initializer}
    for value in (*made.graph.input, *made.graph.output):
        if value.name not in weights:
            value.type.tensor_type.shape.dim[0].dim_value = batch
    del made.graph.value_info[:]
    return made


def _run(arguments: Sequence[str], target: Path | None = None) -> None:
    """A command of eqsat's in a process of its own; what it prints is shown, and kept in the log or in a file."""
    command = [sys.executable, "-m", "eqsat", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(HERE.parent), os.environ.get("PYTHONPATH", "")))}
    click.echo(f"$ eqsat {shlex.join(arguments)}", err=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    if target is not None and done.returncode == 0:
        target.write_text(done.stdout)
    else:
        click.echo(done.stdout, nl=False)
        with (RESULTS / "gpu.log").open("a") as log:
            log.write(
                f"# {datetime.now(UTC).isoformat(timespec='seconds')} eqsat {shlex.join(arguments)}\n{done.stdout}\n"
            )
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
