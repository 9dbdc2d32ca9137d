"""Writes the tables of docs/power.md: ``python -m benchmarks.power``.

False statements of published laws, with a counterexample each, and the rules of the library that the corrected 44 laws
do not derive.
"""

from pathlib import Path

from rich.console import Console

from benchmarks.rules.power import false_table, lacking_table
from eqsat.rewrites.rules.loader import shipped_rules
from eqsat.rewrites.rules.parser import parse_rules

FOLDER = Path(__file__).parents[1] / "docs" / "power"
_GENERATED = "Written by `python -m benchmarks.power`.\n\n"


def main() -> None:
    """Writes both tables."""
    console = Console(stderr=True)
    published = parse_rules((FOLDER / "published.rules").read_text(), "published.rules")
    false = parse_rules((FOLDER / "false.rules").read_text(), "false.rules", origin="candidate")
    library = [rule for rule in shipped_rules() if rule.origin == "library"]
    (FOLDER / "false.md").write_text(f"# False statements of published laws\n\n{_GENERATED}{false_table(false)}")
    console.print(f"{len(false)} false equations refuted; deriving {len(library)} rules from {len(published)} laws")
    table = lacking_table(library, published)
    (FOLDER / "lacking.md").write_text(f"# Rules that the 44 published laws do not derive\n\n{_GENERATED}{table}")
    console.print(table.splitlines()[0])


if __name__ == "__main__":
    main()
