"""`eqsat measure`: fills the table of measured costs, or lists kernels to measure on another machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import Progress

from eqsat.commands.arguments import DURATION, NAMES, SIZE
from eqsat.commands.choices import DEVICE, MODEL_FILE, PRECISIONS
from eqsat.commands.costs.keys import keys_of_model, light_models
from eqsat.commands.display import count_bar, interruptible
from eqsat.commands.output import console, output_options
from eqsat.commands.targets import check_target
from eqsat.errors import CostError, EqsatError, MissingExtraError, UsageError
from eqsat.language.onnx.files.access import check_model_file
from eqsat.report.units import count
from eqsat.runtime.threads import check_threads
from eqsat.system.files import write_text

if TYPE_CHECKING:
    from eqsat.costs.devices.device import Device
    from eqsat.costs.kernels.fusion import Key
    from eqsat.costs.table.table import CostTable

_FILE = click.Path(path_type=Path)


@dataclass(frozen=True)
class Job:
    """Models to measure, each in float32 by policies, and in other element types."""

    models: tuple[Path, ...]
    keys: Path | None
    sizes: Mapping[str, int]
    threads: int
    fused: int
    variants: tuple[tuple[str, str], ...]
    graphs: bool
    time_limit: float | None


@dataclass
class Measurements:
    """Measured kernels and whole graphs, failures with reasons, discarded windows, and keys that are left."""

    measured: int = 0
    known: int = 0
    left: int = 0
    discarded: int = 0
    graphs: int = 0
    failed: Sequence[tuple[str, str]] = ()
    warnings: Sequence[str] = ()
    stopped: bool = False


@click.command()
@click.argument("given", metavar="[MODEL.onnx]...", nargs=-1, type=MODEL_FILE)
@click.option("--models", type=NAMES, multiple=True, help="Models, separated by commas, besides the arguments.")
@click.option(
    "--device", type=DEVICE, default="onnxruntime-cpu", show_default=True, help="The device; cuda is the GPU here."
)
@click.option("--keys", "keys_file", metavar="FILE", type=_FILE, help="Measure the kernels listed in this file.")
@click.option("--list", "list_file", metavar="FILE", type=_FILE, help="Only write the list of kernels there.")
@click.option("--export", "target", metavar="OUT.jsonl", type=_FILE, help="Write the entries of this machine there.")
@click.option("--size", "sizes", type=SIZE, multiple=True, help="Size of a named dim; may be repeated.")
@click.option("--threads", type=int, default=1, show_default=True, help="Threads of a CPU's runtime.")
@click.option("--fused", type=int, default=64, show_default=True, help="Fused kernels for each model, at most.")
@click.option("--precision", type=PRECISIONS, default="exact", show_default=True, help="Policies to measure for.")
@click.option("--dtype", type=NAMES, default="float32", show_default=True, help="Element types in place of float32.")
@click.option(
    "--wholes/--no-wholes", "graphs", default=True, show_default=True, help="Measure each model's result as a whole."
)
@click.option("--time-limit", type=DURATION, help="Start no measurement after this time.")
@output_options
def measure(
    given: tuple[Path, ...],
    models: tuple[list[str], ...],
    device: str,
    keys_file: Path | None,
    list_file: Path | None,
    target: Path | None,
    sizes: tuple[tuple[str, int], ...],
    threads: int,
    fused: int,
    precision: list[str],
    dtype: list[str],
    graphs: bool,
    time_limit: float | None,
) -> None:
    """Measure the kernels of models on a device: operators, those that rules find in their place, and fused ones.

    Each in the layouts and the precisions it may be run in, then each model's result as a whole. Without models
    and lists, the kernels of the models that come with the onnx package, which takes minutes. Entries that the table
    has are not measured again, so a run that was stopped continues. A list of kernels, written by --list on any
    machine, is measured by --keys on one that has the GPU, where neither egglog nor a solver is needed.
    """
    named = tuple(Path(name) for names in models for name in names)
    job = Job((*named, *given), keys_file, dict(sizes), threads, fused, _variants(precision, dtype), graphs, time_limit)
    _check(job, list_file, target)
    from eqsat.costs.devices.device import Device
    from eqsat.costs.table.table import CostTable

    out = console()
    if list_file is not None:
        _list(job, Device.of(device), list_file, out)
        return
    from eqsat.costs.measuring.gpu import here_for

    of = here_for(device, "be measured")
    with CostTable() as table:
        if target is not None:
            check_target(target, [Path(table.path)])
        with interruptible() as should_stop, count_bar() as bar:
            outcome = (_on_gpu if of.gpu else _on_cpu)(job, of, table, bar, should_stop)
        _report(outcome, table, out)
        if target is not None:
            _export(of, table, threads, target, out)
    if outcome.stopped:
        raise KeyboardInterrupt


@click.command(
    "measure",
    params=[parameter for parameter in measure.params if parameter.name != "graphs"],
    deprecated="`eqsat measure --no-wholes` is the same",
)
@click.pass_context
def costs_measure(context: click.Context, /, **options: Any) -> None:
    """Measure the kernels of models, without their results as whole graphs."""
    context.invoke(measure, **options, graphs=False)


def _check(job: Job, list_file: Path | None, target: Path | None) -> None:
    """UsageError for arguments that say two things, or nothing."""
    if job.time_limit is not None and not job.time_limit > 0:
        raise UsageError(f"--time-limit {job.time_limit}", expected="a time above 0")
    for name, number in (("--fused", job.fused), ("--threads", job.threads - 1)):
        if number < 0:
            raise UsageError(f"{name} {number + (name == '--threads')}", expected="a number that is not below it")
    check_threads(job.threads)
    for model in job.models:
        check_model_file(model)
    if list_file is not None and (job.keys is not None or target is not None):
        raise UsageError("--list with --keys or --export", expected="--list alone: it measures nothing")
    if list_file is not None:
        check_target(list_file, job.models)


def _variants(precisions: Sequence[str], dtypes: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The element types that models are taken in, each with its policies: other element types have one, "exact"."""
    from eqsat.costs.kernels.precision import NARROW, policy

    for name in precisions:
        policy(name)
    unknown = next((name for name in dtypes if name not in ("float32", *NARROW)), None)
    if unknown is not None:
        raise UsageError(f"--dtype {unknown}", expected="float32, " + ", ".join(NARROW))
    wide = [("float32", name) for name in precisions] if "float32" in dtypes else []
    return (*wide, *((name, "exact") for name in dtypes if name != "float32"))


def _list(job: Job, device: Device, target: Path, out: Console) -> None:
    """Writes the kernels worth measuring for the models."""
    from eqsat.costs.kernels.keylist import write_keys

    with interruptible() as should_stop, count_bar() as bar:
        keys, warnings = _gathered(job, device, bar, should_stop)
    for warning in warnings:
        out.print(f"warning: {warning}", style="yellow", soft_wrap=True)
    write_text(target, write_keys(keys))
    out.print(f"{count(len(keys), 'kernel')} of {device.name} to measure in {target}", soft_wrap=True)


def _gathered(
    job: Job, device: Device, bar: Progress, should_stop: Callable[[], bool]
) -> tuple[dict[Key, None], list[str]]:
    """The kernels of a list and of the models; without either, of the models that come with the onnx package."""
    from eqsat.costs.kernels.keylist import read_keys

    keys: dict[Key, None] = {} if job.keys is None else dict.fromkeys(read_keys(job.keys))
    models = job.models if job.models or job.keys is not None else tuple(light_models())
    if job.keys is not None or not models:
        return keys, []
    from eqsat.costs.measuring.kernel import runs_nothing
    from eqsat.steps.settings import choices_for

    warnings: list[str] = []
    task = bar.add_task("reading", total=len(models) * len(job.variants))
    for model in models:
        for dtype, precision in job.variants:
            bar.update(task, description=f"{model.name}, {dtype}, {precision}")
            choices, more = choices_for(device, "auto", precision)
            warnings += [w for w in more if w not in warnings]
            listed = keys_of_model(model, device, job.sizes, choices, job.fused, dtype)
            keys |= dict.fromkeys(key for key in listed if not (device.gpu and runs_nothing(key)))
            bar.advance(task)
            if should_stop():
                return keys, warnings
    bar.remove_task(task)
    return keys, warnings


def _on_cpu(job: Job, device: Device, table: CostTable, bar: Progress, should_stop: Callable[[], bool]) -> Measurements:
    """Measures on ONNX Runtime."""
    from eqsat.costs.measuring.measure import fill

    keys, warnings = _gathered(job, device, bar, should_stop)
    try:
        follow = _follower(bar, should_stop)
        filled = fill(keys, table, follow, job.time_limit, threads=job.threads, shipped=False, device=device)
    except KeyboardInterrupt:
        return Measurements(warnings=warnings, stopped=True)
    failed = [(key.text, why) for key, why in filled.failed]
    outcome = Measurements(filled.measured, filled.known, filled.left, failed=failed, warnings=warnings)
    return _with_whole_graphs(outcome, job, device, table, None, bar, should_stop)


def _on_gpu(job: Job, device: Device, table: CostTable, bar: Progress, should_stop: Callable[[], bool]) -> Measurements:
    """Measures on the GPU that is here, by the protocol of its tables."""
    from eqsat.costs.measuring.gpu import measuring

    keys, warnings = _gathered(job, device, bar, should_stop)
    with measuring(device, table) as run:
        done = run.run(keys, _follower(bar), job.time_limit, should_stop)
        failed = [(key.text, why) for key, why in done.failed]
        outcome = Measurements(done.measured, done.known, done.left, done.discarded, 0, failed, warnings, should_stop())
        return _with_whole_graphs(outcome, job, device, table, run.stopwatch, bar, should_stop)


def _with_whole_graphs(
    outcome: Measurements,
    job: Job,
    device: Device,
    table: CostTable,
    watch: Any,
    bar: Progress,
    should_stop: Callable[[], bool],
) -> Measurements:
    """The outcome with each model's result measured as a whole, where the packages that choose it are installed."""
    if outcome.stopped or outcome.left or not job.graphs or not job.models:
        return outcome
    from eqsat.commands.costs.whole_graphs import measure_whole

    task = bar.add_task("whole graphs", total=len(job.models) * len(job.variants))
    for model in job.models:
        for dtype, precision in job.variants:
            bar.update(task, description=f"{model.name}, {dtype}, {precision}, whole")
            try:
                outcome.graphs += measure_whole(
                    model, device, (dtype, precision), table, watch, sizes=job.sizes, threads=job.threads
                )
            except MissingExtraError as lacking:
                outcome.warnings = [*outcome.warnings, f"whole graphs were not measured: {lacking.what}"]
                return outcome
            except EqsatError as error:
                outcome.failed = [*outcome.failed, (f"{model.name}, {dtype}, {precision}, whole", error.what)]
            bar.advance(task)
            if should_stop():
                outcome.stopped = True
                return outcome
    return outcome


def _follower(bar: Progress, should_stop: Callable[[], bool] = lambda: False) -> Callable[[int, int, Key], None]:
    """A function that advances the bar of a measurement, and ends it where nothing else does."""
    task = bar.add_task("measuring", total=None)

    def follow(done: int, total: int, key: Key) -> None:
        if should_stop():
            raise KeyboardInterrupt
        bar.update(task, completed=done, total=total, description=key.op)

    return follow


def _report(outcome: Measurements, table: CostTable, out: Console) -> None:
    for warning in outcome.warnings:
        out.print(f"warning: {warning}", style="yellow", soft_wrap=True)
    windows = f"; {count(outcome.discarded, 'window')} measured again" if outcome.discarded else ""
    graphs = f", {count(outcome.graphs, 'whole graph')}" if outcome.graphs else ""
    measured = f"{count(outcome.measured, 'operator')}{graphs} measured"
    out.print(f"{measured}, {outcome.known} known before, {outcome.left} left{windows}")
    for text, reason in outcome.failed:
        out.print(f"not measured: {text}: {reason}", soft_wrap=True)
    out.print(f"table: {table.path}", soft_wrap=True)


def _export(device: Device, table: CostTable, threads: int, target: Path, out: Console) -> None:
    """Writes the entries of this machine as JSON lines."""
    from eqsat.costs.table.entry import TableRecord
    from eqsat.costs.table.environment import Environment
    from eqsat.costs.table.lines import write_records

    environment = Environment.current(device, threads)
    records = [TableRecord(environment, key, entry) for key, entry in table.own(environment).items()]
    if not records:
        raise CostError("nothing to export: no entry of this machine", where=str(target), expected="measured entries")
    write_text(target, write_records(records))
    out.print(f"{count(len(records), 'entry', 'entries')} in {target}", soft_wrap=True)
