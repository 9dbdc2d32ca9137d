"""Where operators are named apart from their declarations: `python -m benchmarks.operator_names [--json FILE]`."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

import eqsat
from eqsat.language.ops import OPS

PACKAGE = Path(eqsat.__file__).parent
#: Where operators are declared, and where kernels of one kind of operator are written.
HOME = ("language/ops", "runtime/kernels/templates", "runtime/kernels/nests/gpu_groups")
#: Files whose strings name functions of NumPy, of C or of dims, some of which are called as operators are.
FUNCTIONS = (
    "language/arithmetic",
    "language/terms/dims.py",
    "language/terms/formulas.py",
    "runtime/kernels/expressions/operations.py",
)


@click.command()
@click.option("--json", "target", type=click.Path(path_type=Path), help="Write the counts there too.")
@click.option("--names/--no-names", default=False, help="Say which names, too.")
def main(target: Path | None, names: bool) -> None:
    """Counts strings equal to an operator's name, by file: in tables and comparisons, and as arguments of calls.

    Docstrings and comments do not count.
    """
    files = {str(path.relative_to(PACKAGE)): tuple(named(path)) for path in sources()}
    counts = {file: Counter(place for place, _ in uses) for file, uses in files.items() if uses}
    table = Table("file", "tables and comparisons", "calls", *(["names"] if names else []))
    for file in sorted(counts, key=lambda f: (-counts[f].total(), f)):
        which = Counter(name for _, name in files[file]).most_common()
        said = " ".join(f"{name}:{count}" for name, count in which)
        table.add_row(file, str(counts[file]["table"]), str(counts[file]["call"]), *([said] if names else []))
    whole = sum(counts.values(), Counter())
    table.add_row("all", str(whole["table"]), str(whole["call"]), *([""] if names else []))
    Console().print(table)
    print(f"{whole.total()} names in {len(counts)} files")
    if target is not None:
        document = {"names": whole.total(), **whole, "files": counts}
        target.write_text(json.dumps(document, indent=1) + "\n")


def sources() -> list[Path]:
    """The files of the package that count."""
    paths = ((path, str(path.relative_to(PACKAGE))) for path in sorted(PACKAGE.rglob("*.py")))
    return [path for path, file in paths if not file.startswith((*HOME, *FUNCTIONS))]


def named(path: Path) -> Iterator[tuple[str, str]]:
    """Each string of a file that is an operator's name, with "call" where it is an argument and "table" elsewhere."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    silent = {id(n.value) for n in nodes if isinstance(n, ast.Expr)}
    arguments = {id(a) for n in nodes if isinstance(n, ast.Call) for a in [*n.args, *(k.value for k in n.keywords)]}
    for node in nodes:
        if isinstance(node, ast.Constant) and id(node) not in silent and str(node.value) in OPS:
            yield "call" if id(node) in arguments else "table", str(node.value)


if __name__ == "__main__":
    main()
