"""Lines of code of the package by room, without blanks, comments and docstrings, and the imports among them."""

from __future__ import annotations

import ast
import io
import json
import tokenize
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

PACKAGE = Path(__file__).parents[1] / "eqsat"
RESULT = Path(__file__).parent / "results" / "size.json"
_SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


@dataclass(frozen=True)
class Size:
    """Files, lines of code in them, and the lines of these that import."""

    files: int
    code: int
    imports: int

    def __add__(self, other: Size) -> Size:
        return Size(self.files + other.files, self.code + other.code, self.imports + other.imports)


def size_of(text: str) -> Size:
    """The size of a file.

    >>> size_of('"A docstring."\\nimport os  # for paths\\n\\n# A comment.\\nx = (\\n    os.sep\\n)\\n')
    Size(files=1, code=4, imports=1)
    """
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _SILENT:
            lines |= set(range(token.start[0], token.end[0] + 1))
    imports: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                lines -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return Size(1, len(lines), len(imports))


def sizes(package: Path = PACKAGE) -> dict[str, Size]:
    """The size of each room, a folder or a file of the package."""
    rooms: dict[str, Size] = {}
    for path in sorted(package.rglob("*.py")):
        room = path.relative_to(package).parts[0]
        rooms[room] = rooms.get(room, Size(0, 0, 0)) + size_of(path.read_text(encoding="utf-8"))
    return rooms


@click.command()
@click.option("-o", "--output", type=click.Path(path_type=Path), default=RESULT, show_default=True)
def main(output: Path) -> None:
    """Count the lines of code of eqsat and write them as a table and as JSON."""
    rooms = sizes()
    total = sum(rooms.values(), Size(0, 0, 0))
    table = Table("room", "files", "code", "imports", box=None)
    for name, size in [*sorted(rooms.items(), key=lambda item: -item[1].code), ("total", total)]:
        table.add_row(name, *(f"{number:,}".replace(",", " ") for number in (size.files, size.code, size.imports)))
    Console().print(table)
    document = {"rooms": {name: asdict(size) for name, size in rooms.items()}, "total": asdict(total)}
    output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
