"""Arguments, tables and rule files that nobody should give: each is refused at once, in one message."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import parser

import eqsat
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.table import storage
from eqsat.costs.table.entry import Entry
from eqsat.costs.table.environment import Environment
from eqsat.costs.table.table import CostTable
from eqsat.errors import CostError, UsageError
from eqsat.runtime.threads import most_threads

Run = Callable[..., tuple[int, str, str]]
HERE = Environment.current()
#: Lists in lists, deeper than what reads JSON goes.
NEST = "[" * 9000 + "]" * 9000
ENDLESS = f"""CREATE VIEW entries AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
    SELECT '{HERE.text}' AS environment, 'relu {{}} float32[' || i || ']' AS key, 1e-6 AS seconds, 1e-6 AS p10,
    1e-6 AS p90, 1 AS samples, '' AS plan, NULL AS hot FROM n"""
LOOSE = "CREATE TABLE entries (environment, key, seconds, p10, p90, samples, plan, hot)"


@pytest.fixture
def model(folder: Path) -> Path:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { a = Relu(x) \n y = Tanh(a) }'
    onnx.save(parser.parse_model(text), folder / "m.onnx")
    return folder / "m.onnx"


@pytest.mark.parametrize("given", [0, 5000, 99_999_999_999, 2**70, True, 2.0])
def test_more_threads_than_a_machine_makes_sense_of_are_refused(given: object, model: Path) -> None:
    with pytest.raises(UsageError) as caught:
        eqsat.optimize(model, threads=given)  # type: ignore[arg-type]
    assert str(caught.value) == (
        f"threads = {given!r}\n  expected a whole number from 1 to {most_threads()}, on this machine"
    )


@pytest.mark.parametrize("given", ["5000", "99999999999"])
@pytest.mark.parametrize(
    "command",
    [
        ("optimize", "m.onnx", "-o", "out.onnx"),
        ("measure", "m.onnx"),
        ("bench", "m.onnx"),
        ("costs", "measure", "m.onnx"),
    ],
    ids=" ".join,
)
def test_commands_refuse_them_before_they_start(run: Run, model: Path, command: tuple[str, ...], given: str) -> None:
    code, _, err = run(*command, "--threads", given)
    *_deprecated, error = [line for line in err.splitlines() if line[0] != " "]
    assert (code, error) == (2, f"error: threads = {given}")
    assert not Path("out.onnx").exists()


@pytest.mark.parametrize("target", [".", "..", "/", ""])
def test_a_folder_is_no_target(run: Run, model: Path, target: str) -> None:
    code, _, err = run("optimize", model, "-o", target)
    assert code == 2
    assert "the target is a folder" in err


@pytest.mark.parametrize(
    "command",
    [("rules", "verify"), ("rules", "prove"), ("optimize", "m.onnx", "-o", "out.onnx", "--rules")],
    ids=" ".join,
)
def test_a_rule_file_that_is_no_utf8_is_refused(run: Run, model: Path, command: tuple[str, ...]) -> None:
    Path("latin.rules").write_bytes("r: relu(x) => x  # caf\u00e9\n".encode("latin-1"))
    code, _, err = run(*command, "latin.rules")
    assert code == 2
    assert err.splitlines()[0] == "error: latin.rules: cannot be read: byte 22 is no UTF-8"


def made(*statements: str, version: int = storage.VERSION) -> Path:
    """A file that says it is a cost table of a version, and holds what the statements make."""
    connection = sqlite3.connect("costs.sqlite3")
    for statement in (*statements, f"PRAGMA application_id = {storage.APPLICATION}"):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.commit()
    connection.close()
    return Path("costs.sqlite3")


def filled(count: int = 1) -> Path:
    """A table with some entries, all in its one file."""
    with CostTable("costs.sqlite3") as table:
        for number in range(count):
            key = OpKey.parse(f"relu {{}} float32[{number + 1}, 8]")
            table.put(HERE, key, Entry(2e-6, 1e-6, 3e-6, 20))
        table.execute("PRAGMA wal_checkpoint(TRUNCATE)", ())
    return Path("costs.sqlite3")


def added(environment: object, key: object) -> None:
    connection = sqlite3.connect(filled())
    connection.execute("INSERT INTO entries VALUES (?, ?, 1e-6, 1e-6, 1e-6, 1, '', NULL)", (environment, key))
    connection.commit()
    connection.close()


TABLES = {
    "an endless view": (lambda: made(ENDLESS), "a cost table that holds something else: view entries"),
    "a trigger": (
        lambda: made(storage.SCHEMA, "CREATE TRIGGER t BEFORE INSERT ON entries BEGIN SELECT RAISE(ABORT, 'no'); END"),
        "a cost table that holds something else: table entries, trigger t",
    ),
    "a search index": (
        lambda: made("CREATE VIRTUAL TABLE entries USING fts5(environment)"),
        "that holds something else",
    ),
    "rows of NULL": (
        lambda: made(LOOSE, "INSERT INTO entries VALUES (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"),
        "a cost table with other columns than its format has",
    ),
    "columns that lack": (lambda: made("CREATE TABLE entries (environment, key)"), "with other columns"),
    "a nested key": (lambda: added(HERE.text, f'relu {{"a":{NEST}}} float32[1]'), "no operator key: 'relu"),
    "a key of objects": (lambda: added(HERE.text, 'relu {"a":{"b":[1]}} float32[1]'), "no operator key: 'relu"),
    "a nested environment": (lambda: added(NEST, "relu {} float32[1]"), "no environment: '[[["),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_that_eqsat_did_not_write_is_refused(run: Run, model: Path, name: str) -> None:
    make, why = TABLES[name]
    make()
    for command in (("optimize", model, "-o", "out.onnx", "--no-measure"), ("costs", "show")):
        code, _, err = run(*command)
        assert code == 2
        assert why in err.splitlines()[0]


def test_a_table_that_is_cut_short_anywhere_is_refused_or_whole(run: Run, model: Path) -> None:
    path = filled(200)
    data = path.read_bytes()
    for size in (1, 100, 1000, 4096, 5000, 8192, len(data) - 4096, len(data) - 1):
        for file in path.parent.glob("costs.sqlite3*"):
            file.unlink()
        path.write_bytes(data[:size])
        code, _, err = run("costs", "show")
        assert code in (0, 2), size
        assert "unexpected" not in err


@pytest.mark.parametrize("version", [1, 2])
def test_tables_of_older_formats_are_still_read(folder: Path, version: int) -> None:
    columns = storage.SCHEMA.replace(", hot REAL", "")
    made(columns if version == 2 else columns.replace(" plan TEXT NOT NULL DEFAULT '',", "", 1), version=version)
    with CostTable("costs.sqlite3") as table:
        table.put(HERE, OpKey.parse("relu {} float32[1]"), Entry(2e-6, 1e-6, 3e-6, 20))
        assert list(table.own(HERE)) == ["relu {} float32[1]"]


@pytest.mark.parametrize(
    "key", [f'relu {{"a":{NEST}}} float32[1]', 'reduce_sum {"axes":[{"b":[1]}]} float32[1]'], ids=len
)
def test_a_nested_key_in_a_file_of_entries_is_refused_with_its_line(run: Run, folder: Path, key: str) -> None:
    values = {
        "environment": json.loads(HERE.text),
        "key": key,
        "seconds": 2e-6,
        "p10": 1e-6,
        "p90": 3e-6,
        "samples": 20,
    }
    Path("in.jsonl").write_text('{"format": "eqsat cost table", "version": 1}\n' + json.dumps(values) + "\n")
    code, _, err = run("costs", "import", "in.jsonl")
    assert code == 2
    assert err.startswith("error: in.jsonl:2: no operator key: ")
    assert len(err) < 500
    with pytest.raises(CostError, match="no operator key"):
        OpKey.parse(key)
