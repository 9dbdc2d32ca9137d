"""`eqsat costs measure`: fills the table of measured costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from eqsat.commands.arguments import DURATION, SIZE, debug_option
from eqsat.commands.costs.keys import keys_of_model, light_models
from eqsat.commands.display import console, count_bar, interruptible
from eqsat.errors import UsageError
from eqsat.report.units import count
from eqsat.runtime.threads import check_threads

if TYPE_CHECKING:
    from eqsat.costs.kernels.fusion import Key


@click.command()
@click.argument("models", metavar="[MODEL.onnx]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--device", default="onnxruntime-cpu", show_default=True, help="What to measure on.")
@click.option("--size", "sizes", type=SIZE, multiple=True, help="What a named dim is measured at; may be repeated.")
@click.option("--threads", type=int, default=1, show_default=True, help="Threads of the measured runtime.")
@click.option("--fused", type=int, default=64, show_default=True, help="Fused kernels for each model, at most.")
@click.option(
    "--precision", default="exact", show_default=True, help="The policy whose element types are measured too."
)
@click.option("--time-limit", type=DURATION, help="Begin no operator after this time.")
@debug_option
def measure(
    models: tuple[Path, ...],
    device: str,
    sizes: tuple[tuple[str, int], ...],
    threads: int,
    fused: int,
    precision: str,
    time_limit: float | None,
) -> None:
    """Measure the operators of models, and those that rules find in their place, one at a time.

    Then products with the operators element by element that follow them, which the runtime may fuse, and operators in
    other layouts, and in the element types of a policy, with the copies and casts between them.

    Without a model, those of the networks that come with the onnx package. What was measured here before is not
    measured again, so a run that was stopped goes on where it was. The table is a file in the user's cache, or the one
    that EQSAT_COST_TABLE names.
    """
    from eqsat.costs.devices.device import Device
    from eqsat.costs.measuring.measure import DEVICE, fill
    from eqsat.costs.table.table import CostTable
    from eqsat.steps.settings import choices_for

    if Device.of(device).name != DEVICE:
        raise UsageError(f"{device} is not measured here", expected=DEVICE, remedy="`eqsat measure` measures GPUs")
    if time_limit is not None and not time_limit > 0:
        raise UsageError(f"--time-limit {time_limit}", expected="a time above 0")
    if fused < 0:
        raise UsageError(f"--fused {fused}", expected="a number of 0 or more")
    check_threads(threads)
    choices, warnings = choices_for(Device.of(device), "auto", precision)
    with CostTable() as table, interruptible() as should_stop, count_bar() as bar:
        task = bar.add_task("reading", total=None)
        keys: dict[Key, None] = {}
        for model in models or light_models():
            bar.update(task, description=model.name)
            keys |= dict.fromkeys(keys_of_model(model, Device.of(device), dict(sizes), choices, fused))
            if should_stop():
                break

        def follow(done: int, total: int, key: Key) -> None:
            if should_stop():
                raise KeyboardInterrupt
            bar.update(task, completed=done, total=total, description=key.op)

        filled = fill(keys, table, follow, time_limit, threads=threads, shipped=False)
    out = console()
    for warning in warnings:
        out.print(f"warning: {warning}", style="yellow", soft_wrap=True)
    out.print(f"{count(filled.measured, 'operator')} measured, {filled.known} known before, {filled.left} left")
    for key, reason in filled.failed:
        out.print(f"not measured: {key.text}: {reason}", soft_wrap=True)
    out.print(f"table: {table.path}", soft_wrap=True)
