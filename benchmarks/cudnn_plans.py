"""The plan of cuDNN's for each of its calls in the benchmark models, on GPUs that are not here.

`python -m benchmarks.cudnn_plans [MODEL …]` needs the extra `cuda13` (`make test-cuda` makes an environment with it),
and no GPU: cuDNN lists and builds plans behind a driver that only answers. Models are taken as given, and as chosen for
an H200 in float16 by estimates. What is known is kept with the version of cuDNN, so that calls are asked for once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import eqsat
from benchmarks.models import MODELS, load
from benchmarks.programs import REPEATED, sizes_of
from eqsat.language.onnx.read.importer import load as read
from eqsat.runtime.cuda.libraries.calls import Attention, Convolution, Normalisation
from eqsat.runtime.cuda.libraries.cudnn import Call, described
from eqsat.runtime.cuda.libraries.planner import ARCHITECTURES, CallPlan, plans_for
from eqsat.runtime.cuda.libraries.substitute import parted, source_of
from eqsat.runtime.cuda.program.lowering import program_of
from eqsat.runtime.kernels.view import View
from eqsat.runtime.programs.program import KernelProgram

RESULT = Path(__file__).parent / "results" / "cudnn_plans.json"


def key_of(call: Call) -> str:
    """A call by what cuDNN is told of it: where its tensors lie in memory is not."""
    parts = [type(call).__name__.lower()]
    for field in fields(call):
        value = getattr(call, field.name)
        if isinstance(value, View):
            parts.append(
                f"{field.name} {value.dtype.value}{list(value.shape)} by {list(value.strides)} at {value.alignment}"
            )
        elif value is not None:
            parts.append(f"{field.name} {value}")
    return ", ".join(parts)


def calls_of(program: KernelProgram) -> dict[str, Call]:
    """The calls of cuDNN's in a program by their keys."""
    works = (launch.work for launch in program.launches)
    return {key_of(work): work for work in works if isinstance(work, Attention | Convolution | Normalisation)}


def programs_of(name: str, seconds: float) -> Mapping[str, KernelProgram]:
    """A model on a GPU as given, and as it is chosen for one in float16 by estimates."""
    graph = read(load(name))
    sizes = sizes_of(graph)
    result = eqsat.optimize(load(name), device="nvidia-h200", precision="float16", measure=False, time_limit=seconds)
    return {"as given": program_of(graph, sizes), "chosen": result.gpu_program(sizes)}


def generated(call: Call) -> str:
    """The kernel that computes a call without a library; none where its operators run by their references."""
    found = source_of(call)
    return "none" if found is None else found[0].entry


@click.command()
@click.argument("models", nargs=-1)
@click.option("--seconds", default=10.0, show_default=True, help="The time limit of choosing a model.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=RESULT, help=f"[{RESULT.name}]")
def main(models: tuple[str, ...], seconds: float, output: Path) -> None:
    """Prints and writes which calls of cuDNN's have a plan on which architecture."""
    import cudnn

    version = str(cudnn.backend_version())
    kept = json.loads(output.read_text(encoding="utf-8")) if output.exists() else {}
    known: dict[str, Any] = kept.get("calls", {}) if kept.get("cudnn") == version else {}
    rows: dict[str, Any] = kept.get("models", {}) if kept.get("cudnn") == version else {}
    for name in models or [name for name in MODELS if name not in REPEATED]:
        if not models and name in rows:
            continue
        rows[name] = {}
        for form, program in programs_of(name, seconds).items():
            calls = calls_of(program)
            ask(calls, known)
            rows[name][form] = {arch: counted(calls, known, arch) for arch in ARCHITECTURES}
        told = {"cudnn": version, "models": rows, "calls": known}
        output.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        Console(stderr=True).print(f"{name}: {rows[name]}")
    show(rows)


def ask(calls: Mapping[str, Call], known: dict[str, Any]) -> None:
    """Take in the plans of calls that are not known; for one without, of its part that a kernel may follow."""
    for arch in ARCHITECTURES:
        unknown = {key: call for key, call in calls.items() if arch not in known.get(key, {}).get("plans", {})}
        plans = list(plans_for(list(unknown.values()), arch))
        lacking = {key: parts for (key, call), plan in zip(unknown.items(), plans, strict=True)
                   if plan.fault and (parts := parted(call)) is not None}  # fmt: skip
        bare = dict(zip(lacking, plans_for([parts[0] for parts in lacking.values()], arch), strict=True))
        for (key, call), plan in zip(unknown.items(), plans, strict=True):
            one = known.setdefault(key, {"call": described(call), "plans": {}})
            one["plans"][arch] = kept(plan)
            if key in bare:
                one["plans"][arch] |= {"first of two": kept(bare[key]), "second": lacking[key][1].entry}
            elif plan.fault:
                one["generated"] = generated(call)


def kept(plan: CallPlan) -> dict[str, Any]:
    """A plan as JSON has it."""
    return {name: value for name, value in asdict(plan).items() if value or name == "workspace"}


def counted(calls: Iterable[str], known: Mapping[str, Any], arch: str) -> dict[str, int]:
    """How many calls there are, how many have a plan, or one followed by a kernel, and the largest workspace."""
    plans = [known[key]["plans"][arch] for key in calls]
    firsts = [one["first of two"] for one in plans if "first of two" in one]
    whole = [one for one in plans if "fault" not in one]
    split = [one for one in firsts if "fault" not in one]
    return {
        "calls": len(plans),
        "with a plan": len(whole),
        "in two": len(split),
        "workspace": max((one["workspace"] for one in (*whole, *split)), default=0),
    }


def show(rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Print a line for each model and form: calls with a plan of all, and the largest workspace, by architecture."""
    table = Table("model", "form", *(f"{arch}, workspace" for arch in ARCHITECTURES))
    for name, forms in rows.items():
        for form, by in forms.items():
            texts = (
                f"{one['with a plan']} + {one['in two']} in two of {one['calls']}, {one['workspace'] / 1e6:.1f} MB"
                for one in by.values()
            )
            table.add_row(name, form, *texts)
    Console().print(table)


if __name__ == "__main__":
    main()
