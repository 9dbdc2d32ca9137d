"""Evidence: the machine-written record of the checks of each rule, and when it still counts.

That of shipped rules ships with them; that on the laws of a user's operators stays in a file of the user's cache. Such
files have one JSON object a line.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from eqsat.errors import RuleError
from eqsat.language.ops import spec
from eqsat.rewrites.conditions.expression import compiled
from eqsat.rewrites.conditions.functions import FUNCTIONS
from eqsat.rewrites.rules.meaning import fingerprint
from eqsat.rewrites.rules.rule import Rule
from eqsat.system.cache import cache_folder
from eqsat.system.files import write_text

#: The record of the shipped rules.
SHIPPED = Path(__file__).parents[1] / "axioms" / "evidence.jsonl"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The result of checking one rule.

    `verdict` is "proved" where Z3 settled every symbolic instance and every other one agreed, "refuted" with a
    counterexample, or "undecided" with a reason. `symbolic` and `numeric` count instances, `exact` those of the numeric
    ones that also agree modulo a prime; `pairs` counts the pairs of attribute and shape features covered. `bounded`
    counts instances of the bounded grid, run modulo a prime; the grid is complete for tensors up to rank 3 with dims up
    to `side` and of rank 4 with dims up to `deep`, and `exhaustive` says that both are 4 and no attribute was left out.
    `entailed` is how the rule follows from laws, "" where that is not known; `laws` names them, `chain` leads from one
    side to the other, and `missing` is an equation that would close the gap. `basis` is a hash of these laws.

    `ranks` is the rank up to which the sides are proved equal for every size of at least 1, -1 where they are not;
    `every_rank` says that this is so at all ranks, and `open` why it goes no further. `numbers` is "float" where both
    sides have the same bits, "real" where they may round differently, or differ in what is not finite.
    """

    name: str
    hash: str
    verdict: str
    symbolic: int = 0
    numeric: int = 0
    exact: int = 0
    pairs: int = 0
    detail: str = ""
    bounded: int = 0
    exhaustive: bool = False
    side: int = 0
    deep: int = 0
    entailed: str = ""
    laws: tuple[str, ...] = ()
    chain: tuple[str, ...] = ()
    missing: str = ""
    basis: str = ""
    ranks: int = -1
    every_rank: bool = False
    open: str = ""
    numbers: str = ""

    @property
    def scope(self) -> str:
        """The sizes and ranks that the rule was proved for, in one phrase.

        >>> Evidence("law", "", "proved", ranks=3).scope, Evidence("law", "", "proved", bounded=90, side=4).scope
        ('proved for every size at ranks up to 3', 'bounded by sizes up to 4')
        """
        if self.verdict != "proved":
            return self.verdict
        if self.ranks >= 0:
            return f"proved for {sizes_proved(self.ranks, self.every_rank)}"
        return f"bounded by sizes up to {self.side}" if self.side else "tried"

    @property
    def bits(self) -> str:
        """The numbers of which the rule is true, in one phrase.

        >>> Evidence("law", "", "proved", numbers="float").bits
        'of floats: both sides have the same bits'
        """
        return {
            "float": "of floats: both sides have the same bits",
            "real": "of real numbers: floats may be rounded differently",
        }.get(self.numbers, "not looked at")

    @property
    def is_for_every_size(self) -> bool:
        """True of a rule that is proved for every size, at some ranks or at all."""
        return self.verdict == "proved" and self.ranks >= 0

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Evidence:
        """The evidence of a record with lists for tuples; TypeError where it is of none."""
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in record.items()}
        return cls(**values)


def sizes_proved(ranks: int, every_rank: bool) -> str:
    """The sizes that a proof at ranks up to one is of, in words."""
    return "every rank and size" if every_rank else f"every size at ranks up to {ranks}"


def rule_hash(rule: Rule) -> str:
    """A hash of the rule's canonical text and of the functions that give it meaning.

    These are the references and shape rules of its operators and the functions its conditions call, each by its syntax
    tree (`eqsat.rewrites.rules.meaning`).
    """
    digest = hashlib.blake2b(rule.text.encode(), digest_size=12)
    for name in sorted(rule.operators()):
        declared = spec(name)
        digest.update(f"{name}{sorted(declared.attrs.items(), key=str)}".encode())
        digest.update(fingerprint(declared.reference))
        digest.update(fingerprint(declared.infer))
    for called in sorted({c for e in rule.expressions() for c in compiled(e).called}):
        digest.update(fingerprint(FUNCTIONS[called]) if called in FUNCTIONS else called.encode())
    return digest.hexdigest()


def read_evidence(path: Path = SHIPPED) -> dict[str, Evidence]:
    """The records of a file by rule; RuleError for a line that is none."""
    if not path.exists():
        return {}
    records = read_json_lines(path, Evidence.of, "record of evidence", "the verifier", "run `eqsat rules verify`")
    return {record.name: record for record in records}


def write_evidence(records: Iterable[Evidence], path: Path = SHIPPED) -> None:
    """Write the records, in order, in place of the file."""
    write_json_lines(records, path)


def is_current(rule: Rule, record: Evidence | None, known: Mapping[str, Rule] | None = None) -> bool:
    """True if the record proves the rule as it stands, and the laws it rests on, found in `known`, are as they were."""
    if record is None or record.verdict != "proved" or record.hash != rule_hash(rule):
        return False
    return not record.basis or known is None or record.basis == basis_hash(record.laws, known)


def basis_hash(laws: Iterable[str], known: Mapping[str, Rule]) -> str:
    """A hash of laws by name, so that evidence that rests on them goes when one is edited or gone."""
    digest = hashlib.blake2b(digest_size=12)
    for name in sorted(laws):
        digest.update(f"{name} {rule_hash(known[name]) if name in known else 'gone'};".encode())
    return digest.hexdigest()


#: The environment variable that names another file.
VARIABLE = "EQSAT_EVIDENCE"
#: A file that has grown beyond so many bytes begins anew.
MOST_BYTES = 4_000_000


def evidence_path() -> Path:
    """The file named by EQSAT_EVIDENCE, or one in the user's cache folder."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else cache_folder() / "evidence.jsonl"


def recalled(rules: Sequence[Rule]) -> dict[str, Evidence]:
    """The records that are current for these rules, by name; lines that are no records are skipped."""
    path = evidence_path()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    wanted = {rule.name: rule_hash(rule) for rule in rules}
    records: dict[str, Evidence] = {}
    for line in lines:
        try:
            record = Evidence(**json.loads(line))
        except (TypeError, ValueError):
            continue
        if wanted.get(record.name) == record.hash:
            records[record.name] = record
    return records


def remember(records: Iterable[Evidence]) -> None:
    """Add records to the file; a folder that cannot be written to costs only time."""
    text = "".join(json.dumps(asdict(r), ensure_ascii=False) + "\n" for r in records)
    if not text:
        return
    path = evidence_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        full = path.exists() and path.stat().st_size > MOST_BYTES
        with path.open("w" if full else "a", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        return


Record = TypeVar("Record")


def read_json_lines(
    path: Path, make: Callable[[dict[str, Any]], Record], kind: str, writer: str, remedy: str
) -> Iterator[Record]:
    """The records of a file, each made of one object; RuleError with the line for one that is none of its kind.

    `writer` is what writes such files.
    """
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            yield make(json.loads(line))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RuleError(
                f"no {kind}: {error}",
                where=f"{path}:{number}",
                expected=f"one JSON object a line{writer and ', written by the '}{writer}",
                remedy=remedy,
            ) from None


def json_lines(records: Iterable[Any]) -> str:
    """Records, dataclasses or mappings, as one JSON object a line."""
    plain = (dict(one) if isinstance(one, Mapping) else asdict(one) for one in records)
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in plain)


def write_json_lines(records: Iterable[Any], path: Path) -> None:
    """Write records in place of a file."""
    write_text(path, json_lines(records))
