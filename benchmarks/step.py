"""One step for one model in a process of its own, so that memory and imports are its own; prints a line of JSON."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models import load

#: Seconds that measuring the operators of one graph may take, and how often the cheapest graph is chosen anew.
_FILL_SECONDS, _CHOICES = 120.0, 3


def build(name: str, folder: Path) -> dict[str, Any]:
    """Writes the model to a file."""
    import onnx

    model = load(name)
    path = folder / "model.onnx"
    external = model.ByteSize() > 1 << 31
    onnx.save(model, path, save_as_external_data=external, location="model.data")
    size = sum(p.stat().st_size for p in folder.iterdir())
    return {"file_mb": size / 1e6, "model_nodes": len(model.graph.node)}


def fill(name: str, folder: Path) -> dict[str, Any]:
    """Measures the model's operators into the default cost table."""
    from eqsat.costs.kernels.applications import keys_of
    from eqsat.costs.measuring.measure import fill as fill_table
    from eqsat.costs.table.table import CostTable
    from eqsat.language.onnx.read.importer import load as read

    start = time.perf_counter()
    keys = keys_of(read(folder / "model.onnx"))
    fill_table(keys, CostTable())
    return {"filled": len(keys), "fill_seconds": time.perf_counter() - start}


def optimise(name: str, folder: Path) -> dict[str, Any]:
    """The whole of reading, optimising, certifying and writing, without measuring; imports are counted in."""
    start = time.perf_counter()
    import eqsat

    result = eqsat.optimize(folder / "model.onnx", measure=False)
    result.save(folder / "unmeasured.onnx")
    seconds = time.perf_counter() - start
    report = result.report
    size = sum(p.stat().st_size for p in folder.glob("model.*"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "seconds": seconds,
        "phases": dict(report.seconds),
        "peak_mb": peak / 1e6,
        "peak_over_file": peak / size,
        "nodes": f"{report.nodes_before} → {report.nodes_after}",
        "enodes": report.enodes,
        "eclasses": report.eclasses,
        "fired": sum(report.rules_fired.values()),
        "rules_fired": dict(report.rules_fired),
        "stopped_by": report.stopped_by,
        "extraction": report.extraction,
        "extract_seconds": report.seconds["extract"],
        "gap": report.gap,
        "cost_ratio": report.cost_after / report.cost_before if report.cost_before else 1.0,
        "estimated_share": report.estimated_share,
        "certificate": {k: getattr(report.certificate, k) for k in ("kind", "error", "text")},
        "opaque": len(report.opaque),
    }


def usage(name: str, folder: Path) -> dict[str, Any]:
    """How often each rule fired, and in how many values of the cheapest graph it had a part."""
    import eqsat

    report = eqsat.optimize(folder / "model.onnx", measure=False).report
    chosen = Counter(rule for change in report.changes for rule in change.rules for _ in change.values)
    uses = [
        {"rule": rule, "model": name, "fired": fired, "chosen": chosen[rule]}
        for rule, fired in sorted(report.rules_fired.items())
    ]
    return {"uses": uses}


def explain(name: str, folder: Path) -> dict[str, Any]:
    """How much of the cheapest graph, and of the whole e-graph, chains of rules explain, and what measuring keeps."""
    import eqsat
    from eqsat.egraph.encode import encode
    from eqsat.egraph.explain import Explainer
    from eqsat.egraph.saturate import Saturator
    from eqsat.language.onnx.read.model import read
    from eqsat.rewrites.rules.loader import load_rules
    from eqsat.steps.settings import limits_for

    chosen = eqsat.optimize(folder / "model.onnx", measure=False).explain()
    kept = eqsat.optimize(folder / "model.onnx")
    encoding = encode(read(folder / "model.onnx").graph)
    Saturator(encoding.egraph, load_rules(), limits_for(20_000, 30.0)).run()
    start = time.perf_counter()
    explainer = Explainer(encoding.egraph)
    whole = explainer.derive_all()
    return {
        "changes": len(chosen.changes),
        "places": sum(c.places for c in chosen.changes),
        "rules": len(chosen.grounds),
        "pairs": chosen.pairs,
        "gaps": chosen.gaps,
        "predicted": sum(c.predicted or 0.0 for c in chosen.changes),
        "enodes": encoding.egraph.size()[0],
        "all_pairs": len(whole.chains),
        "all_gaps": whole.gaps,
        "longest": max((len(chain or ()) for chain in whole.chains.values()), default=0),
        "seconds": time.perf_counter() - start,
        "kept": kept.report.kept,
        "measured": [
            {n: getattr(c, n) for n in ("what", "rules", "places", "predicted", "measured", "spread", "unmeasured")}
            for c in kept.explain().changes
        ],
        "whole_saved": None
        if kept.report.measured_before is None or kept.report.kept == "original"
        else kept.report.measured_before - (kept.report.measured_after or 0.0),
    }


def latency(name: str, folder: Path) -> dict[str, Any]:
    """Original and measured result in one interleaved run of its own."""
    import eqsat
    from eqsat.language.onnx.read.importer import load as read
    from eqsat.runtime.examples import example_inputs
    from eqsat.runtime.measure import interleaved
    from eqsat.runtime.onnxruntime.session import session

    result = eqsat.optimize(folder / "model.onnx")
    result.save(folder / "result.onnx")
    feeds = example_inputs(read(folder / "model.onnx"), {}, 1)
    sessions = {n: session(folder / f"{n}.onnx", threads=1) for n in ("model", "result")}
    calls = {n: (lambda s=s: s.run(None, feeds)) for n, s in sessions.items()}
    timings = interleaved(calls, 60, 1, time_limit=12.0)
    return {
        "kept": result.report.kept,
        "old_ms": timings.median("model") * 1e3,
        "new_ms": timings.median("result") * 1e3,
        "ratio": timings.ratio("result", "model"),
        "ratio_bound": timings.ratio_bound("result", "model"),
        "rounds": timings.rounds,
    }


def predict(name: str, folder: Path) -> dict[str, Any]:
    """The sum of measured operator costs against the time of the whole, for the original and the cheapest graph.

    What the cheapest graph consists of is measured too, and the choice made again, until it holds nothing new.
    """
    import eqsat
    from eqsat.costs.kernels.applications import keys_of
    from eqsat.costs.measuring.measure import fill as fill_table
    from eqsat.costs.model.model import CostModel
    from eqsat.costs.table.table import CostTable
    from eqsat.language.onnx.read.importer import load as read
    from eqsat.runtime.examples import example_inputs
    from eqsat.runtime.measure import interleaved
    from eqsat.runtime.onnxruntime.session import session

    graph = read(folder / "model.onnx")
    with CostTable() as table:
        fill_table(keys_of(graph), table, time_limit=_FILL_SECONDS)
        for _ in range(_CHOICES):
            result = eqsat.optimize(folder / "model.onnx", measure=False, table=table)
            if not fill_table(keys_of(result.graph), table, time_limit=_FILL_SECONDS).measured:
                break
        model = CostModel(table=table)
        costs = {"original": model.graph(graph), "optimised": model.graph(result.graph)}
    result.save(folder / "result.onnx")
    feeds = example_inputs(graph, {}, 1)
    files = {"original": "model.onnx", "optimised": "result.onnx"}
    if result.report.kept == "original":
        del files["optimised"]
    sessions = {form: session(folder / file, threads=1) for form, file in files.items()}
    calls = {form: (lambda s=s: s.run(None, feeds)) for form, s in sessions.items()}
    timings = interleaved(calls, 40, 1, time_limit=10.0)
    return {
        "load": os.getloadavg()[0],
        "forms": {
            form: {
                "sum": costs[form].total.seconds,
                "kernels": costs[form].total.launches,
                "estimated_share": costs[form].estimated_share,
                "measured": timings.median(form),
                "rounds": timings.rounds,
            }
            for form in calls
        },
    }


def borrow(name: str, folder: Path) -> dict[str, Any]:
    """Costs of the original and of the result as they are on a machine that nothing was measured on, and their times.

    Of each graph, "roofline" is its cost by the roofline alone, "cold" by borrowed entries with weights from far memory
    for each reader, "sum" with weights that are shared, which is the cost that is chosen by.
    """
    import eqsat
    from eqsat.costs.model.borrowed import Borrowed
    from eqsat.costs.model.model import CostModel
    from eqsat.costs.table.table import CostTable
    from eqsat.language.onnx.read.importer import load as read
    from eqsat.runtime.examples import example_inputs
    from eqsat.runtime.measure import interleaved
    from eqsat.runtime.onnxruntime.session import session

    graph = read(folder / "model.onnx")
    with CostTable() as table:
        result = eqsat.optimize(folder / "model.onnx", table=table)
        plain = CostModel()
        borrowed = Borrowed.of(table, plain.device, plain.environment)
        models = {"roofline": plain, "cold": plain, "sum": plain}
        if borrowed is not None:
            models |= {kind: plain.borrowing(borrowed) for kind in ("cold", "sum")}
        models["sum"].settle(graph)
    result.save(folder / "result.onnx")
    forms = {"original": graph, "optimised": result.graph}
    if result.report.kept == "original":
        del forms["optimised"]
    feeds = example_inputs(graph, {}, 1)
    files = {"original": "model.onnx", "optimised": "result.onnx"}
    sessions = {form: session(folder / files[form], threads=1) for form in forms}
    timings = interleaved({f: (lambda s=s: s.run(None, feeds)) for f, s in sessions.items()}, 40, 1, time_limit=10.0)
    whole = models["sum"].graph(graph)
    return {
        "load": os.getloadavg()[0],
        "from": "" if borrowed is None else borrowed.description,
        "borrowed_share": whole.borrowed_share,
        "estimated_share": whole.estimated_share,
        "forms": {
            form: {
                "measured": timings.median(form),
                **{
                    name: _cold(model, g) if name == "cold" else model.graph(g).total.seconds
                    for name, model in models.items()
                },
            }
            for form, g in forms.items()
        },
    }


def _cold(model: Any, graph: Any) -> float:
    """The cost of a graph if every operator had its weights from far memory."""
    from eqsat.costs.kernels.applications import applications

    return sum(
        model.node(n.op, n.attrs, operands, results, const).seconds
        for n, operands, results, const in applications(graph)
    )


def accuracy(name: str, folder: Path) -> dict[str, Any]:
    """‖out − ref‖ / ‖ref‖ of result and original on ONNX Runtime, the reference being the original in float64."""
    from eqsat.certify import relative_difference
    from eqsat.language.arithmetic.floats import Floats
    from eqsat.language.graphs.interpret import run
    from eqsat.language.onnx.read.importer import load as read
    from eqsat.runtime.examples import example_inputs
    from eqsat.runtime.onnxruntime.session import session

    graph = read(folder / "model.onnx")
    feeds = example_inputs(graph, {}, 2)
    wide = {n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in feeds.items()}
    exact = run(graph, wide, Floats(wide=True))
    errors: dict[str, list[float]] = {}
    result = "result" if (folder / "result.onnx").exists() else "unmeasured"
    for file in ("model", result):
        made = session(folder / f"{file}.onnx", threads=1)
        names = [o.name for o in made.get_outputs()]
        outputs = dict(zip(names, made.run(names, feeds), strict=True))
        errors[file] = [relative_difference(np.asarray(exact[n]), _wide(outputs[n])) for n in graph.outputs]
    worst = max(
        (new / old if old else (1.0 if new == old else float("inf")))
        for new, old in zip(errors[result], errors["model"], strict=True)
    )
    return {"checked": result, "error": max(errors[result]), "own_error": max(errors["model"]), "error_over_own": worst}


def _wide(array: Any) -> Any:
    return array.astype(np.float64) if array.dtype.kind == "f" else array


STEPS = {f.__name__: f for f in (build, fill, optimise, usage, explain, latency, predict, borrow, accuracy)}

if __name__ == "__main__":
    print(json.dumps(STEPS[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))))
