"""Writes the figures of docs/compare.md, docs/pytorch.md and docs/growth.md: ``python -m benchmarks.compare``.

The text between ``<!-- figures: NAME -->`` and ``<!-- end of figures -->`` is made by a function here; the rest of the
page is written by hand and has no figure of ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import click

from benchmarks.baselines.figures import baselines
from benchmarks.c_figures import models_in_c, operators_in_c
from benchmarks.growth_figures import growth, phases
from benchmarks.markdown import mean, number, percent, table
from benchmarks.precision.figures import precisions

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "compare.md"
TORCH_PAGE, GROWTH_PAGE = PAGE.with_name("pytorch.md"), PAGE.with_name("growth.md")

#: The files of results by name, as parsed.
Results: TypeAlias = Mapping[str, Any]
#: The text in place of the figures of a file that does not exist yet.
_MISSING = "Not measured yet: there is no `{}.json`."
_BLOCK = re.compile(r"(?<=<!-- figures: )(\w+)( -->\n).*?(?=<!-- end of figures -->)", re.S)


def read_results(folder: Path = RESULTS) -> Results:
    """Every file of results, by its name without the ending."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


def rewritten(page: str, results: Results) -> str:
    """The page with the figures of these results; KeyError for a block that nothing here makes."""
    figures = {**FIGURES, "torch": torch, "phases": phases, "growth": growth}
    return _BLOCK.sub(lambda found: f"{found[1]}{found[2]}\n{figures[found[1]](results)}\n\n", page)


def machine(results: Results) -> str:
    """The machine and the versions on which the models were optimised and timed."""
    found = results["models"]
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items() if name != "eqsat")
    return f"Measured {found['when'][:10]} on {found['cpu']}, Python {found['python']}, {versions}."


def models(results: Results) -> str:
    """Every model: the work of optimising it, and the time of the result over that of the original."""
    rows = [row for row in results["models"]["models"] if "failed" not in row]
    head = ["model", "nodes", "seconds", "peak MB", "e-nodes", "gap", "kept", "new/old", "upper 95 %", "error"]
    return table(
        head,
        (
            [
                row["model"],
                row["nodes"],
                number(row["seconds"]),
                number(row["peak_mb"]),
                number(row["enodes"]),
                percent(row["gap"]),
                row["kept"],
                number(row["ratio"], 4),
                number(row["ratio_bound"], 4),
                f"{row['error']:.1e}",
            ]
            for row in sorted(rows, key=lambda row: row["ratio"])
        ),
    )


def summary(results: Results) -> str:
    """A summary of the table of models, in sentences."""
    rows = [row for row in results["models"]["models"] if "failed" not in row]
    changed = [row for row in rows if row["kept"] != "original"]
    same = [row for row in rows if row["kept"] == "original"]
    faster = [row for row in changed if row["ratio_bound"] < 1]
    slower = [row for row in changed if row["ratio"] > 1]
    best = min(rows, key=lambda row: row["ratio"])
    lines = [
        f"* Of {len(rows)} models a new graph was kept for {len(changed)}, and the original for {len(same)}; "
        f"{len(results['models']['models']) - len(rows)} failed.",
        f"* In the second run {len(faster)} of the {len(changed)} are significantly faster (upper 95 % bound below 1); "
        f"the geometric mean of new/old over all {len(rows)} models is {number(mean(row['ratio'] for row in rows))}, "
        f"and the best is {best['model']} at {number(best['ratio'])}.",
        f"* {len(slower)} of the {len(changed)} are slower in the second run than the original, by "
        f"{percent(max(row['ratio'] for row in slower) - 1)} at most."
        if slower
        else "* None is slower in the second run than the original.",
        f"* Where the original was kept, both files are the same model, and their ratio shows the noise: "
        f"{number(min(row['ratio'] for row in same), 4)} to {number(max(row['ratio'] for row in same), 4)}.",
        f"* Optimisation takes {number(min(row['seconds'] for row in rows))} to "
        f"{number(max(row['seconds'] for row in rows))} s, including reading and certifying.",
        f"* The largest ratio of the error to that of the original, both against float64, is "
        f"{number(max(row['error_over_own'] for row in rows))}.",
        f"* Of the cost that the search minimised, {percent(min(row['estimated_share'] for row in rows))} or more was "
        "estimated.",
    ]
    return "\n".join(lines)


_EXTRACTORS: Mapping[str, str] = MappingProxyType(
    {
        "ilp": "integer program",
        "tree": "greedy, by tree",
        "dag": "greedy, by DAG",
        "original": "the original graph",
        "alpha 0.95": "backtracking, alpha 0.95",
        "alpha 1": "backtracking, alpha 1",
        "alpha 1.05": "backtracking, alpha 1.05",
        "alpha 1.1": "backtracking, alpha 1.1",
    }
)


def extraction(results: Results) -> str:
    """Extraction methods on the same e-graphs."""
    kinds = {"model": "models", "file": "files of the public extractor benchmark"}
    head = ["method", "at the bound", "mean cost over the integer program", "worst gap", "seconds, all"]
    parts = []
    for kind, title in kinds.items():
        rows = [row for row in results["extraction"]["summary"] if row["kind"] == kind]
        shown = [
            [
                _EXTRACTORS.get(row["extractor"], row["extractor"]),
                str(row["at_bound"]),
                number(row["mean_cost_over_ilp"], 4),
                percent(row["worst_gap"]),
                number(row["seconds"]),
            ]
            for row in rows
        ]
        parts.append(f"Over {rows[0]['graphs']} {title}:\n\n{table(head, shown)}")
    return "\n\n".join(parts)


def anytime(results: Results) -> str:
    """Large e-graphs, and those of Tensat's that are public."""
    head = ["e-graph", "e-nodes", "greedy", "cost", "bound", "gap", "ended", "seconds", "peak MB"]
    return table(
        head,
        (
            [
                row["graph"],
                number(row["e-nodes"]),
                number(row["greedy"], 4),
                number(row["cost"], 4),
                number(row["bound"], 4),
                percent(row["gap"]),
                str(row["status"]).replace("_", " "),
                number(row["seconds"]),
                number(row["peak MB"]),
            ]
            for row in results["anytime"]["graphs"]
        ),
    )


def states(results: Results) -> str:
    """Extraction with layouts and precisions."""
    head = ["model", "rules", "states a tensor", "implementations", "ended", "gap", "greedy over chosen", "seconds"]
    return table(
        head,
        (
            [
                row["model"],
                row["rules"],
                str(row["states"]),
                number(row["implementations"]),
                str(row["status"]).replace("_", " "),
                percent((row["cost"] - row["bound"]) / row["cost"]),
                number(row["greedy"] / row["cost"], 4),
                number(row["seconds"]),
            ]
            for row in results["states"]["rows"]
        ),
    )


def mutants(results: Results) -> str:
    """Verdicts of the verifier on rules that were changed in one place."""
    found = results["mutants"]
    rows = found["table"]
    columns = list(rows["all"])
    shown = [[kind, *(number(row[column]) for column in columns)] for kind, row in rows.items()]
    return f"{number(found['tried'])} of {number(found['mutants'])} mutants:\n\n{table(['change', *columns], shown)}"


def predict(results: Results) -> str:
    """Factors between sums of measured costs and the times of whole graphs."""
    names = {"sum": "the sum", "fit, model held back": "a fit to the other models", "new/old": "new over old, by sums"}
    rows = [
        [names.get(name, name), number(row["median"]), number(row["p90"]), number(row["most"])]
        for name, row in results["predict"]["errors"].items()
    ]
    return table(["prediction", "median", "ninetieth percentile", "maximum"], rows)


def scaling(results: Results) -> str:
    """Growth of work with depth."""
    found = results["scaling"]["medians"]
    return table(["BERT", "median"], ([name, number(value)] for name, value in found.items()))


def programs(results: Results) -> str:
    """Plans of models for a GPU, made without one."""
    found = results["programs"]
    rows = found["models"]
    ratio = mean(row["optimised"]["launches"] / row["given"]["launches"] for row in rows)
    more = [row for row in rows if row["optimised"]["launches"] > row["given"]["launches"]]
    spills = sum(row["optimised"]["spill_bytes"] for row in rows)
    registers = max(row["optimised"]["registers"] for row in rows)
    head = ["model", "launches, original", "launches, chosen", "arena / lower bound", "gap"]
    shown = [
        [
            row["model"],
            number(row["given"]["launches"]),
            number(row["optimised"]["launches"]),
            number(row["optimised"]["arena"] / row["optimised"]["bound"]) if row["optimised"]["bound"] else "",
            percent(row["gap"]),
        ]
        for row in sorted(rows, key=lambda row: row["optimised"]["launches"] / row["given"]["launches"])
    ]
    return (
        f"Planned for {found['device']} in {found['precision']}, by estimates: over {len(rows)} models launches fall "
        f"to {number(ratio)} of those of the original graph (geometric mean); {len(more)} plans have more. Generated "
        f"kernels take {registers} registers at most and spill {number(spills)} bytes, by NVRTC for "
        f"{found['architecture']}.\n\n{table(head, shown)}"
    )


def explain(results: Results) -> str:
    """The share of changes that chains of rules explain."""
    if "explain" not in results:
        return _MISSING.format("explain")
    found = results["explain"]
    total = found["total"]
    rows = [
        [
            row["model"],
            *(number(row[key]) for key in ("changes", "pairs", "gaps", "all_pairs", "all_gaps")),
            number(float(row["seconds"])),
        ]
        for row in found["models"]
        if "failed" not in row
    ]
    head = ["model", "changes", "pairs they use", "gaps", "pairs of the e-graph", "gaps", "seconds"]
    chains, every = total["pairs"] - total["gaps"], total["all_pairs"] - total["all_gaps"]
    return (
        f"Over {total['models']} models {number(chains)} of {number(total['pairs'])} pairs of equal terms that changes "
        f"use have a chain of rules, and {number(every)} of {number(total['all_pairs'])} pairs of the whole "
        f"e-graphs.\n\n{table(head, rows)}"
    )


def savings(results: Results) -> str:
    """Predicted and measured savings of the changes of measured results, alone and as a whole."""
    if "explain" not in results:
        return _MISSING.format("explain")
    rows: list[list[str]] = []
    for row in results["explain"]["models"]:
        if row.get("whole_saved") is None:
            continue
        predicted = sum(c["predicted"] or 0.0 for c in row["measured"])
        rows.append([row["model"], "the whole model", milli(predicted), milli(row["whole_saved"]), "", ""])
        rows += [
            ["", c["what"], milli(c["predicted"]), milli(c["measured"]), milli(c["spread"]), c["unmeasured"] or ""]
            for c in row["measured"]
        ]
    head = ["model", "change", "predicted, ms", "measured, ms", "spread, ms", "reason if not timed alone"]
    return table(head, rows)


def milli(seconds: float | None) -> str:
    """Seconds as milliseconds; nothing for what was not measured."""
    return "" if seconds is None else number(1e3 * seconds)


def faults(results: Results) -> str:
    """Faults of the machine and of the input that were tried on purpose."""
    if "faults" not in results:
        return _MISSING.format("faults")
    kinds = results["faults"]["kinds"]
    rows = [
        [name, number(row["tries"]), number(row["failed"]), number(float(row["longest"]["seconds"]))]
        for name, row in kinds.items()
    ]
    return table(["fault", "tried", "failed", "longest, seconds"], rows)


#: The functions that make the blocks of the page, by name.
FIGURES: Mapping[str, Callable[[Results], str]] = MappingProxyType(
    {
        one.__name__: one
        for one in (
            machine,
            models,
            summary,
            extraction,
            baselines,
            anytime,
            states,
            precisions,
            mutants,
            predict,
            scaling,
            operators_in_c,
            models_in_c,
            programs,
            explain,
            savings,
            faults,
        )
    }
)


def torch(results: Results) -> str:
    """Modules of PyTorch by each program: its time, over eager mode's, and the seconds of both starts."""
    found = results.get("torch")
    if found is None:
        return _MISSING.format("torch")
    head = ["model", "program", "ms", "of eager", "95 %", "of ONNX Runtime", "95 %", "first start", "second start"]
    rows = []
    for row in found["models"]:
        for program, figures in row["programs"].items():
            ratios = [figures.get(key) for key in ("over_eager", "over_onnxruntime")]
            texts = [t for r in ratios for t in (("", "") if r is None else (number(r[0]), _between(r[1], r[2])))]
            starts = [f"{figures[key]:.1f} s" for key in ("start", "second_start")]
            rows.append([row["model"], f"`{program}`", number(figures["ms"]), *texts, *starts])
    versions = ", ".join(f"{name} {found['versions'][name]}" for name in ("torch", "transformers", "onnxruntime"))
    where = f"Measured {found['when'][:10]} on {found['cpu']}, {found['threads']} thread, {versions}."
    return f"{where}\n\n{table(head, rows)}"


def _between(low: float, high: float) -> str:
    return f"{number(low)} to {number(high)}"


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; fail if the page differs from the files.")
def main(check: bool) -> None:
    """Update the figures of docs/compare.md, docs/pytorch.md and docs/growth.md."""
    for path in (PAGE, TORCH_PAGE, GROWTH_PAGE):
        page = path.read_text(encoding="utf-8")
        wanted = rewritten(page, read_results())
        if check and page != wanted:
            raise click.ClickException(
                f"{path.name} is not what benchmarks/results says; run python -m benchmarks.compare"
            )
        if page != wanted:
            path.write_text(wanted, encoding="utf-8")
        click.echo(f"{path.name}: {len(_BLOCK.findall(page))} blocks of figures")


if __name__ == "__main__":
    main()
