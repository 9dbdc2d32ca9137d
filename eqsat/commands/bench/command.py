"""`eqsat bench`: models by eqsat and by the frameworks that are installed, in one interleaved run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click
from rich.table import Table

from eqsat.commands.arguments import DURATION, NAMES, SIZE
from eqsat.commands.bench.ablation import show as show_ablations
from eqsat.commands.bench.ablation import write as write_ablations
from eqsat.commands.bench.consumers import show as show_consumers
from eqsat.commands.bench.consumers import write as write_consumers
from eqsat.commands.choices import DEVICE, SomeOf
from eqsat.commands.display import count_bar, interruptible
from eqsat.commands.output import console, output_options
from eqsat.errors import EqsatError, UsageError, nearest
from eqsat.language.onnx.files.access import check_model_file
from eqsat.report.units import duration
from eqsat.runtime.threads import check_threads
from eqsat.system.files import unreadable, write_text

if TYPE_CHECKING:
    from eqsat.bench.ablation import Ablation
    from eqsat.bench.comparison import Comparison
    from eqsat.bench.consumers import ConsumerComparison
    from eqsat.costs.devices.device import Device

_FILE = click.Path(path_type=Path)
Outcome = TypeVar("Outcome")
#: Models that could not be compared, each with the reason.
Failures: TypeAlias = Sequence[tuple[str, str]]


def _precisions() -> Sequence[str]:
    from eqsat.bench.case import PRECISIONS

    return PRECISIONS


def _form_names() -> Sequence[str]:
    from eqsat.bench.case import FORMS

    return ("all", *FORMS)


def _check_precision(_name: str, given: Any) -> None:
    from eqsat.bench.case import check_precision

    check_precision(given)


def _check_form(_name: str, given: Any) -> None:
    from eqsat.bench.case import FORMS

    if given not in FORMS:
        raise UsageError(
            f"--forms {given}", expected="all, or some of " + ", ".join(FORMS), remedy=nearest(given, FORMS)
        )


PRECISIONS, FORMS = SomeOf(_precisions, _check_precision), SomeOf(_form_names, _check_form)


@dataclass(frozen=True)
class Contest:
    """Settings that all models of a run share."""

    device: Device
    forms: tuple[str, ...]
    sizes: dict[str, int]
    threads: int
    rounds: int
    seconds: float
    time_limit: float
    check: bool

    def compared(
        self, path: Path, precision: str, progress: Callable[[str], None], should_stop: Callable[[], bool]
    ) -> Comparison:
        """One model in one precision by everyone who is here."""
        from eqsat.bench.case import BenchCase
        from eqsat.bench.comparison import compare, contenders
        from eqsat.costs.table.table import CostTable
        from eqsat.language.onnx.read.importer import load

        case = BenchCase.of(load(path), path.stem, self.device, precision, self.sizes, self.threads)
        with CostTable() as table:
            return compare(
                case,
                contenders(table, forms=self.forms, time_limit=self.time_limit),
                check=self.check,
                rounds=self.rounds,
                seconds=self.seconds,
                progress=progress,
                should_stop=should_stop,
            )

    def consumed(
        self, path: Path, precision: str, progress: Callable[[str], None], should_stop: Callable[[], bool]
    ) -> ConsumerComparison:
        """One model, as it is and optimised, in every runtime that is here."""
        from eqsat.bench.case import BenchCase
        from eqsat.bench.consumers import compare_consumers
        from eqsat.costs.table.table import CostTable
        from eqsat.language.onnx.read.importer import load

        case = BenchCase.of(load(path), path.stem, self.device, precision, self.sizes, self.threads)
        with CostTable() as table:
            return compare_consumers(case, table, progress=progress, should_stop=should_stop, **self._limits)

    def ablated(
        self, path: Path, precision: str, progress: Callable[[str], None], should_stop: Callable[[], bool]
    ) -> Ablation:
        """One model with parts of what makes it fast left out."""
        from eqsat.bench.ablation import ablate
        from eqsat.bench.case import BenchCase
        from eqsat.costs.table.table import CostTable
        from eqsat.language.onnx.read.importer import load

        case = BenchCase.of(load(path), path.stem, self.device, precision, self.sizes, self.threads)
        with CostTable() as table:
            return ablate(case, table, progress=progress, should_stop=should_stop, **self._limits)

    @property
    def _limits(self) -> dict[str, Any]:
        return {"time_limit": self.time_limit, "rounds": self.rounds, "seconds": self.seconds}


@click.command()
@click.argument("given", metavar="[MODEL.onnx]...", nargs=-1, type=_FILE)
@click.option("--models", type=NAMES, multiple=True, help="Models, separated by commas, besides the arguments.")
@click.option(
    "--device", type=DEVICE, default="onnxruntime-cpu", show_default=True, help="Device; cuda is the GPU here."
)
@click.option(
    "--precision", type=PRECISIONS, default="float32", show_default=True, help="Element types, or tf32 for products."
)
@click.option("--forms", type=FORMS, default="all", show_default=True, help="Parts of eqsat that are optimised.")
@click.option("--size", "sizes", type=SIZE, multiple=True, help="Size of a named dim; may be repeated.")
@click.option("--threads", type=int, default=1, show_default=True, help="Threads on a CPU.")
@click.option("--rounds", type=int, default=100, show_default=True, help="Most rounds of all contenders.")
@click.option("--seconds", type=DURATION, default="60s", show_default=True, help="Most time for timing one model.")
@click.option("--time-limit", type=DURATION, default="30s", show_default=True, help="Time limit of each optimisation.")
@click.option("--check/--no-check", default=True, show_default=True, help="Compare outputs with float64 on the CPU.")
@click.option("--consumers", is_flag=True, help="Compare the optimised graph with the original in every runtime here.")
@click.option(
    "--ablation", is_flag=True, help="Time the result without parts of it, in C, on NumPy or as a GPU's plan."
)
@click.option("--results", metavar="FOLDER", type=_FILE, help="Write a summary and all samples there, as JSON.")
@output_options
def bench(
    given: tuple[Path, ...],
    models: tuple[list[str], ...],
    device: str,
    precision: list[str],
    forms: list[str],
    sizes: tuple[tuple[str, int], ...],
    threads: int,
    rounds: int,
    seconds: float,
    time_limit: float,
    check: bool,
    consumers: bool,
    ablation: bool,
    results: Path | None,
) -> None:
    """Compare eqsat with PyTorch, torch.compile, XLA and ONNX Runtime, whichever are here, on models.

    All run the same graph in the same element type, with TF32 for all or for none. The table has the time that the
    hardware's limits allow, and the error of each against float64. eqsat takes part in whole and in part: graph and
    layouts chosen together, one after the other, either alone, and neither. With --consumers, the original graph and
    the one that `optimize` gives are timed in ONNX Runtime, OpenVINO, torch.compile and XLA, whichever are here. With
    --ablation, the parts are the optimised graph, one call for all kernels, memory that values share, and threads or
    streams (not on NumPy): none, each alone, all but each, and all.
    """
    paths = [*(Path(name) for names in models for name in names), *given]
    if not paths:
        raise UsageError("no model", expected="one or more ONNX files", remedy="eqsat bench MODEL.onnx")
    check_threads(threads)
    if all(unreadable(path) for path in paths):
        check_model_file(paths[0])
    placed = _named(device) if ablation else _device(device)
    run = Contest(placed, _forms(forms), dict(sizes), threads, rounds, seconds, time_limit, check)
    if ablation:
        _check_ablation(consumers, precision, forms)
        stopped = _each(paths, precision, run.ablated, _ablations_written(results, run.device), show_ablations)
    elif consumers:
        _check_consumers(run.device, precision, forms)
        stopped = _each(paths, precision, run.consumed, _consumers_written(results, run.device), show_consumers)
    else:
        stopped = _each(paths, precision, run.compared, _contest_written(results, run.device), _show)
    if results is not None:
        console().print(f"wrote {results}", soft_wrap=True)
    if stopped:
        raise KeyboardInterrupt


def _each(
    paths: Sequence[Path],
    precisions: Sequence[str],
    compared: Callable[[Path, str, Callable[[str], None], Callable[[], bool]], Outcome],
    write: Callable[[Sequence[Outcome], Failures], object],
    show: Callable[[Sequence[Outcome], Failures], object],
) -> bool:
    """Compare each model in each precision, write after each, show all in the end, and return if Ctrl-C ended it."""
    done: list[Outcome] = []
    failed: list[tuple[str, str]] = []
    with interruptible() as should_stop, count_bar() as bar:
        task = bar.add_task("models", total=len(paths) * len(precisions))
        for path, kind in product(paths, precisions):
            try:
                done.append(compared(path, kind, lambda what: bar.update(task, description=what), should_stop))
            except EqsatError as error:
                if should_stop():
                    break
                failed.append((f"{path.name}, {kind}", str(error)))
            bar.advance(task)
            write(done, failed)
            if should_stop():
                break
    show(done, failed)
    return should_stop()


def _check_consumers(device: Device, precision: Sequence[str], forms: Sequence[str]) -> None:
    """UsageError for options that say what consumers do not do."""
    if device.gpu:
        raise UsageError(
            f"--consumers on {device.name}", expected="a device that ONNX Runtime runs: the CPU that is here"
        )
    if list(precision) != ["float32"] or list(forms) != ["all"]:
        raise UsageError(
            "--consumers with --precision or --forms", expected="models in their own element types, optimised"
        )


def _check_ablation(consumers: bool, precision: Sequence[str], forms: Sequence[str]) -> None:
    """UsageError for options that say what an ablation does not do."""
    if consumers or list(precision) != ["float32"] or list(forms) != ["all"]:
        raise UsageError(
            "--ablation with --consumers, --precision or --forms",
            expected="models in their own element types, optimised",
        )


def _contest_written(folder: Path | None, device: Device) -> Callable[[Sequence[Comparison], Failures], None]:
    """A function that writes the comparisons so far, if there is a folder for them."""

    def write(done: Sequence[Comparison], failed: Failures) -> None:
        if folder is not None:
            _write(folder, device, done, failed)

    return write


def _consumers_written(folder: Path | None, device: Device) -> Callable[[Sequence[ConsumerComparison], Failures], None]:
    """A function that writes the comparisons in consumers so far, if there is a folder for them."""

    def write(done: Sequence[ConsumerComparison], failed: Failures) -> None:
        if folder is not None:
            write_consumers(folder, {**_about(device), "failed": dict(failed)}, done)

    return write


def _ablations_written(folder: Path | None, device: Device) -> Callable[[Sequence[Ablation], Failures], None]:
    """A function that writes the ablations so far, if there is a folder for them."""

    def write(done: Sequence[Ablation], failed: Failures) -> None:
        if folder is not None:
            write_ablations(folder, device.name, {**_about(device), "failed": dict(failed)}, done)

    return write


def _named(name: str) -> Device:
    """A device by its name or file, whether it is here or not."""
    from eqsat.costs.devices.device import Device

    return Device.of(name)


def _device(name: str) -> Device:
    from eqsat.costs.measuring.gpu import here_for

    return here_for(name, "run models")


def _forms(given: Sequence[str]) -> tuple[str, ...]:
    from eqsat.bench.case import FORMS

    return FORMS if list(given) == ["all"] else tuple(form for form in FORMS if form in given)


def _write(folder: Path, device: Device, done: Sequence[Comparison], failed: Sequence[tuple[str, str]]) -> None:
    """The summary, and every sample of every contender, as JSON; what an earlier run has of other models goes."""
    from eqsat.bench.comparison import summary

    folder.mkdir(parents=True, exist_ok=True)
    about = _about(device)
    rows = [one.as_dict() for one in done]
    document = about | {"summary": summary(done), "models": rows, "failed": dict(failed)}
    write_text(folder / f"bench-{device.name}.json", json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    samples = [
        {"model": one.model, "precision": one.precision, "samples": {r.name: list(r.samples) for r in one.results}}
        for one in done
    ]
    lines = [json.dumps(about), *map(json.dumps, samples)]
    write_text(folder / f"bench-{device.name}.samples.jsonl", "\n".join(lines) + "\n")


def _about(device: Device) -> dict[str, Any]:
    """The time, the machine, and the versions of all that takes part."""
    from eqsat.costs.table.environment import Environment

    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": asdict(Environment.current(device)),
        "versions": _versions(),
        "device": {"name": device.name, "source": device.source},
    }


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    versions = {}
    for package in ("eqsat", "numpy", "onnx", "onnxruntime", "openvino", "torch", "jax", "jaxlib", "triton"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def _show(done: Sequence[Comparison], failed: Sequence[tuple[str, str]]) -> None:
    """A table for each model, the contenders that took no part, and a summary."""
    from eqsat.bench.comparison import summary

    out = console()
    for one in done:
        out.print(table_of(one))
    reasons: dict[tuple[str, str], list[str]] = {}
    for one in done:
        for name, why in one.skipped.items():
            reasons.setdefault((name, why), []).append(one.model)
    for (name, why), where in reasons.items():
        models = "" if len(where) == len(done) else f" on {', '.join(dict.fromkeys(where))}"
        out.print(f"left out{models}: {name}: {why}", soft_wrap=True)
    for name, why in failed:
        out.print(f"failed: {name}: {why}", soft_wrap=True)
    total = summary(done)
    if (mean := total["best peer over eqsat"]) is not None:
        behind = f"; behind a peer on {', '.join(total['behind'])}" if total["behind"] else "; behind none"
        out.print(f"best peer / eqsat: {mean:.2f} in the geometric mean of {total['models']}{behind}", soft_wrap=True)
    for form, ratio in total["forms over joint"].items():
        out.print(f"{form} / eqsat: {ratio:.2f}", soft_wrap=True)


def table_of(one: Comparison) -> Table:
    """The contenders of a model under the limits of the hardware; ratios are their times over eqsat's."""
    limits = one.limits
    least = f"bytes {duration(limits.memory_seconds)}, arithmetic {duration(limits.arithmetic_seconds)}"
    table = Table(title=f"{one.model}, {one.precision}; limits of {one.device}: {least}")
    table.add_column("by", no_wrap=True)
    for heading in ("median", "p10", "p90", "/ limit", "/ eqsat", "90 %", "error"):
        table.add_column(heading, justify="right", no_wrap=True)
    ratios = one.as_dict()["ratios"]
    for row in one.results:
        ratio = ratios.get(row.name)
        times = (duration(s) for s in (row.median, *row.spread))
        shown = ("", "") if ratio is None else (f"{ratio['median']:.2f}", f"{ratio['low']:.2f}–{ratio['high']:.2f}")
        beyond = f"{row.median / limits.seconds:.1f}" if limits.seconds else ""
        table.add_row(row.name, *times, beyond, *shown, "" if row.error is None else f"{row.error:.1e}")
    return table
