"""`eqsat costs` on real tables: measuring, showing, checking, and tables that leave a machine and come together."""

import json
import sqlite3
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import eqsat
from eqsat import cli
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.table import shipped
from eqsat.costs.table.entry import Entry
from eqsat.costs.table.environment import Environment
from eqsat.costs.table.lines import write_records
from eqsat.costs.table.table import CostTable

HERE = Environment.current()
#: Sends Ctrl-C when a time was written, in a process of its own, as a terminal has it.
INTERRUPTED = """
import os, signal
from eqsat import cli
from eqsat.costs.table.table import CostTable
put = CostTable.put
def put_and_interrupt(self, *entry):
    put(self, *entry)
    os.kill(os.getpid(), signal.SIGINT)
CostTable.put = put_and_interrupt
raise SystemExit(cli.run(["costs", "measure", "two.onnx"]))
"""
ELSEWHERE = Environment("onnxruntime-cpu", "a processor", "onnxruntime 1", 1)
ENTRY = Entry(2e-6, 1e-6, 3e-6, 20)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder with an empty table, and nothing shipped, so that every machine sees the same."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EQSAT_COST_TABLE", str(tmp_path / "costs.sqlite3"))
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    shipped.shipped_records.cache_clear()
    shipped.shipped_entries.cache_clear()
    yield tmp_path
    shipped.shipped_records.cache_clear()
    shipped.shipped_entries.cache_clear()


@pytest.fixture
def run(capsys):
    def call(*arguments):
        code = cli.run([str(a) for a in ("costs", *arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def model(folder):
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Tanh", ["a"], ["y"])]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 4]) for n in ("x", "y")]
    onnx.save(helper.make_model(helper.make_graph(nodes, "two", values[:1], values[1:])), "two.onnx")
    return folder / "two.onnx"


def line(key="relu {} float32[2, 8]", environment=HERE, **changed):
    values = {"environment": asdict(environment), "key": key, "seconds": 2e-6, "p10": 1e-6, "p90": 3e-6, "samples": 20}
    return json.dumps(values | changed)


HEADER = '{"format": "eqsat cost table", "version": 1}'


def file(*lines, name="in.jsonl"):
    Path(name).write_text("\n".join((HEADER, *lines)) + "\n")
    return name


def table():
    with CostTable() as held:
        return {(r.environment, r.key): r.entry for r in held.records()}


def test_help_lists_the_commands(run):
    code, out, _ = run("--help")
    assert code == 0
    for command in ("measure", "show", "check", "export", "import"):
        assert f"\n  {command} " in out
        assert run(command, "--help")[0] == 0


class TestMeasure:
    def test_fills_a_table_and_goes_on_where_it_was(self, run, model):
        code, out, _ = run("measure", model)
        assert code == 0
        assert "0 known before, 0 left" in out
        known = len(table())
        assert known >= 2
        assert f"{known} operators measured" in out
        assert f"0 operators measured, {known} known before" in run("measure", model)[1]

    def test_is_an_earlier_name_of_the_command_that_measures_wholes_too(self, run, model, capsys):
        code, out, err = run("measure", model)
        assert code == 0
        assert "`eqsat measure --no-wholes` is the same" in err
        assert not any(key.startswith("whole ") for _, key in table())
        assert cli.run(["measure", "--no-wholes", str(model)]) == 0
        known = len(table())
        assert capsys.readouterr() == (
            out.replace(f"{known} operators measured, 0", f"0 operators measured, {known}"),
            "",
        )

    def test_measures_what_rules_find_and_nothing_that_moves_no_data(self, run):
        nodes = [helper.make_node("Reshape", ["x", "s"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
        x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in (("x", [4]), ("y", [2, 2])))
        shape = onnx.numpy_helper.from_array(np.array([2, 2]), "s")
        onnx.save(helper.make_model(helper.make_graph(nodes, "viewed", [x], [y], [shape])), "viewed.onnx")
        assert run("measure", "viewed.onnx")[0] == 0
        assert {key for _, key in table()} == {"relu {} float32[2, 2]", "relu {} float32[4]"}

    def test_measures_fused_kernels_layouts_and_precisions(self, run):
        g = eqsat.Graph("net")
        x, w = g.input("x", (4, 16)), g.input("w", (8, 16))
        g.output("y", eqsat.relu(x @ eqsat.transpose(w, (1, 0))))
        eqsat.optimize(g, measure=False).save("net.onnx")
        assert run("measure", "net.onnx", "--fused", "0")[0] == 0
        plain = {key for _, key in table()}
        assert "matmul {} float32[4, 16] float32[16, 8]@column" in plain
        assert not any(" ; " in key for key in plain)
        assert run("measure", "net.onnx")[0] == 0
        fused = {key for _, key in table()} - plain
        assert "matmul {} float32[4, 16] float32[16, 8] ; relu {} %0:float32[4, 8]" in fused
        assert all(" ; " in key for key in fused)
        _, out, _ = run("measure", "net.onnx", "--precision", "tf32")
        assert "warning: onnxruntime-cpu has no speed of its own for tf32: left out" in out
        code, out, _ = run("measure", "net.onnx", "--precision", "mixed", "--fused", "0")
        assert code == 0
        assert any("float16" in key for _, key in table())
        assert "not measured: matmul {} float16[4, 16] float16[16, 8] -> float32: ONNX has no words for results" in out
        run("export", "net.jsonl")
        code, out, _ = run("import", "net.jsonl")
        assert code == 0
        assert "matmul {} float32[4, 16] float32[16, 8] ; relu" in run("show", "--contains", " ; ", "--json")[1]

    def test_measures_here_what_comes_with_eqsat(self, run, model):
        file(line("relu {} float32[4, 4]"), name="onnxruntime-cpu.jsonl")
        assert "relu {} float32[4, 4]" in CostTable().entries(HERE)
        assert "0 known before, 0 left" in run("measure", model)[1]
        assert (HERE, "relu {} float32[4, 4]") in table()

    def test_refuses_a_number_of_fused_kernels_below_0_and_an_unknown_policy(self, run, model):
        code, _, err = run("measure", model, "--fused", "-1")
        assert (code, "--fused -1" in err) == (2, True)
        code, _, err = run("measure", model, "--precision", "half")
        assert (code, "precision = 'half'" in err) == (2, True)

    def test_keeps_what_it_has_when_interrupted(self, model):
        done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
        assert done.returncode == 130
        assert "error: interrupted" in done.stderr
        assert len(table()) == 1


class TestShow:
    def test_tells_measured_from_estimated_and_this_machine_from_others(self, run):
        run("import", file(line(), line(environment=ELSEWHERE, seconds=1e-6), line("tanh {} float32[4]")))
        code, out, _ = run("show")
        assert code == 0
        here, elsewhere = out.index(HERE.cpu), out.index(ELSEWHERE.cpu)
        assert here < elsewhere
        assert f"{HERE.runtime}, 1 thread, protocol 1: 2 entries" in out
        used = (
            "another environment, used here for operators that were not measured, times launch 2: cpu is 'a processor'"
        )
        assert f"{used}, here " in out
        assert "runtime is 'onnxruntime 1', here 'onnxruntime " in out
        assert out.count("another environment") == 1
        rows = [row for row in out.splitlines() if "relu {} float32[2, 8]" in row]
        assert ["measured" in row for row in rows] == [True, True]
        assert all(part in rows[0] for part in ("2 µs", "1 µs", "3 µs", "20"))
        assert "nvidia-h200: no measured entry; every cost is an estimate of its roofline" in out

    def test_filters_sorts_and_limits(self, run):
        run("import", file(*(line(f"relu {{}} float32[{n}]", seconds=n * 1e-6, p90=1) for n in (1, 2, 3))))
        _, out, _ = run("show", "--op", "relu", "--sort", "seconds", "--limit", "2", "--device", "onnxruntime-cpu")
        assert out.index("float32[3]") < out.index("float32[2]")
        assert "float32[1]" not in out
        assert "1 more; --limit 0 shows all" in out
        assert "nvidia" not in out
        found = json.loads(run("show", "--contains", "[2]", "--environment", HERE.runtime.upper(), "--json")[1])
        (group,) = found["environments"]
        assert group["differences"] == []
        (entry,) = group["entries"]
        assert (entry["key"], entry["seconds"], entry["origin"]) == ("relu {} float32[2]", 2e-6, "measured")
        assert entry["roofline"] > 0
        assert json.loads(run("show", "--op", "tanh", "--json")[1])["environments"] == []

    def test_shipped_entries_are_used_where_the_table_has_none(self, run, folder):
        file(line(), line("tanh {} float32[4]"), name="onnxruntime-cpu.jsonl")
        with CostTable() as held:
            held.put(HERE, OpKey.parse("relu {} float32[2, 8]"), replace(ENTRY, samples=1))
            assert held.get(HERE, OpKey.parse("relu {} float32[2, 8]")).samples == 1
            assert held.get(HERE, OpKey.parse("tanh {} float32[4]")) == ENTRY
            assert held.entries(ELSEWHERE) == {}
        with CostTable(shipped=False) as held:
            assert list(held.entries(HERE)) == ["relu {} float32[2, 8]"]
        found = json.loads(run("show", "--json")[1])["environments"][0]["entries"]
        assert [(e["key"].split()[0], e["origin"]) for e in found] == [
            ("relu", "measured"),
            ("tanh", "measured, shipped"),
        ]
        run("export", "out.jsonl")
        assert len(Path("out.jsonl").read_text().splitlines()) == 2


class TestCheck:
    def test_prints_the_error_before_and_after_fitting(self, run):
        keys = [f"tanh {{}} float32[{n}]" for n in range(100, 1000, 50)]
        run("import", file(*(line(k, seconds=1e-5 * i + 1e-5, p90=1) for i, k in enumerate(keys)), line()))
        found = json.loads(run("check", "--json", "--folds", "3", "--seed", "1")[1])
        assert found["overall"]["entries"] == 19
        tanh = found["variants"][0]
        assert (tanh["variant"], tanh["entries"]) == ("tanh", 18)
        assert 1 <= tanh["fitted"][0] < 1.1 < 10 < tanh["roofline"][0]
        _, out, _ = run("check", "--folds", "3", "--seed", "1")
        last = out.splitlines()[-2].split("│")[1:-1]
        assert [cell.strip() for cell in last[:2]] == ["all", "19"]
        assert float(last[4]) == round(found["overall"]["fitted"][0], 2)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((), "0 entries in this environment, too few to hold some back\n  expected at least 5, one for each fold"),
            (("--folds", "1"), "folds = 1\n  expected 2 folds or more"),
            (("--seed", "-1"), "seed = -1"),
            (("--device", "nvidia-h200"), "nvidia-h200 is a roofline: nothing was measured on it"),
        ],
    )
    def test_what_cannot_be_checked_is_said(self, run, arguments, message):
        code, _, err = run("check", *arguments)
        assert (code, err.startswith(f"error: {message}")) == (2, True), err

    def test_a_table_of_another_environment_is_named_with_what_differs(self, run):
        run("import", file(line(environment=replace(HERE, threads=3))))
        code, _, err = run("check")
        assert code == 2
        assert err.startswith("error: no entry of this environment; 1 entry of the cost table ")
        assert "costs.sqlite3, measured in another environment: threads is 3, here 1\n  expected entries" in err

    def test_optimising_with_such_a_table_says_so(self, run, model):
        run("import", file(line(environment=replace(HERE, threads=3)), line(environment=replace(HERE, threads=4))))
        (warning,) = eqsat.optimize(model, measure=False).report.warnings
        assert warning == (
            "costs were measured in another environment: threads is 4, here 1; not scaled to this one, since nothing "
            "is to be measured"
        )
        assert eqsat.optimize(model, measure=False, threads=3).report.warnings == []
        assert eqsat.optimize(model, measure=False, device="nvidia-h200").report.warnings == []


class TestExchange:
    def test_what_is_exported_is_imported_as_it_was(self, run, folder, monkeypatch):
        run("import", file(line(), line(environment=ELSEWHERE, plan="tile 64"), line("tanh {} float32[4]", p10=0)))
        before = table()
        assert "3 entries in out.jsonl" in run("export", "out.jsonl")[1]
        monkeypatch.setenv("EQSAT_COST_TABLE", str(folder / "other.sqlite3"))
        assert run("import", "out.jsonl")[1].startswith("3 new, 0 replaced, 0 kept as they were\n")
        assert table() == before
        assert run("import", "out.jsonl", "costs.sqlite3")[1].startswith("0 new, 0 replaced, 3 kept")
        assert run("export", "-")[1] == Path("out.jsonl").read_text()

    def test_filters_say_what_is_exported(self, run):
        run("import", file(line(), line(environment=ELSEWHERE), line("tanh {} float32[4]")))
        run("export", "out.jsonl", "--op", "relu", "--environment", "a processor")
        (only,) = Path("out.jsonl").read_text().splitlines()[1:]
        assert json.loads(only) == json.loads(line(environment=ELSEWHERE))

    def test_more_samples_win_and_then_the_faster(self, run):
        assert run("import", file(line()))[1].startswith("1 new, 0 replaced, 0 kept")
        assert run("import", file(line(samples=19, seconds=1e-6)))[1].startswith("0 new, 0 replaced, 1 kept")
        assert run("import", file(line(seconds=1e-6)))[1].startswith("0 new, 1 replaced, 0 kept")
        (entry,) = table().values()
        assert (entry.samples, entry.seconds) == (20, 1e-6)

    def test_the_table_of_another_machine_is_imported_as_a_file(self, run, folder):
        with CostTable(folder / "theirs.sqlite3") as theirs:
            theirs.put(ELSEWHERE, OpKey.parse("relu {} float32[2, 8]"), ENTRY)
        before = (folder / "theirs.sqlite3").read_bytes()
        assert run("import", "theirs.sqlite3")[1].startswith("1 new")
        assert table() == {(ELSEWHERE, "relu {} float32[2, 8]"): ENTRY}
        assert (folder / "theirs.sqlite3").read_bytes() == before

    def test_a_target_that_is_the_table_is_refused(self, run):
        run("import", file(line()))
        code, _, err = run("export", "costs.sqlite3")
        assert (code, err.startswith("error: costs.sqlite3: the target is the input")) == (2, True)
        assert len(table()) == 1


def without(name):
    values = json.loads(line())
    del values[name]
    return json.dumps(values)


MALFORMED = {
    "no JSON": ("{", "no JSON: '{': "),
    "no object": ("[1]", "no entry: '[1]'\n  expected one JSON object"),
    "an empty line": ("", "no JSON: '': "),
    "a field twice": (line()[:-1] + ', "samples": 3}', "no JSON: "),
    "a field missing": (without("p90"), "no field 'p90'\n  expected environment, key, seconds, p10, p90, samples, and"),
    "a field too many": (line(note="hot"), "a field 'note'\n  expected environment, key, seconds"),
    "NaN": (line(seconds=float("nan")), "no JSON: "),
    "infinity": (line(p90=float("inf")), "no JSON: "),
    "beyond floats": (line(p90="x").replace('"x"', "1e999"), "p90 = inf\n  expected a finite number of seconds"),
    "an integer beyond floats": (line(p90=10**400), "p90 = 1000"),
    "negative": (line(p10=-1e-6), "p10 = -1e-06\n  expected a finite number of seconds, 0 or more"),
    "text for a time": (line(seconds="2"), "seconds = '2'\n  expected a finite number"),
    "true for a time": (line(seconds=True), "seconds = True\n  expected a finite number"),
    "percentiles out of order": (
        line(p10=2.5e-6),
        "p10 = 2.5e-06, seconds = 2e-06, p90 = 3e-06\n  expected p10 <= sec",
    ),
    "no samples": (line(samples=0), "samples = 0\n  expected a whole number of 1 or more"),
    "half a sample": (line(samples=1.5), "samples = 1.5\n  expected a whole number of 1 or more"),
    "a plan that is no text": (line(plan=3), "plan = 3\n  expected text"),
    "an unknown device": (
        line(environment=replace(HERE, device="tpu")),
        "no device 'tpu'\n  expected one of c-cpu, numpy-cpu, nvidia-h200",
    ),
    "no environment": (
        line().replace(json.dumps(asdict(HERE)), "3"),
        "no environment: 3\n  expected the fields device",
    ),
    "no threads": (line(environment=replace(HERE, threads=0)), "an environment whose threads is 0"),
    "a number for a processor": (
        line(environment=replace(HERE, cpu=7)),
        "an environment whose cpu is 7\n  expected text",
    ),
    "a key that is none": (line("relu"), "no operator key: 'relu'\n  expected a line such as"),
    "a key of a number": (line(7), "key = 7\n  expected the text of an operator key"),
    "an unknown operator": (
        line("wave {} float32[2]"),
        "no operator 'wave'\n  expected one of this version of eqsat\n  upda",
    ),
    "an operator misapplied": (
        line("relu {} float32[2] float32[2]"),
        "relu {} float32[2] float32[2]: no such application",
    ),
    "attributes misnamed": (
        line('argmax {"axes":1} float32[2, 3]'),
        'argmax {"axes":1} float32[2, 3]: no such application: ',
    ),
    "a key in another form": (line("relu  {}  float32[2]"), "no operator key"),
    "a fused kernel misapplied": (line("relu {} float32[2] ; wave {} %0:float32[2]"), "no operator 'wave'"),
    "an unknown shape": (line("relu {} float32[n]"), "no operator key: 'relu {} float32[n]'"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_line_is_named_and_nothing_is_imported(run, name):
    malformed, message = MALFORMED[name]
    path = file(line(), malformed, line("tanh {} float32[4]"))
    code, _, err = run("import", file(line("exp {} float32[4]"), name="good.jsonl"), path)
    assert code == 2
    assert err.startswith(f"error: in.jsonl:3: {message}"), err
    assert table() == {}


def test_a_key_twice_in_a_file_is_refused_with_both_lines(run):
    code, _, err = run("import", file(line(), line(environment=ELSEWHERE), line(samples=7)))
    assert (code, table()) == (2, {})
    assert err == (
        "error: in.jsonl:4: the key 'relu {} float32[2, 8]' again, as on line 2\n"
        "  expected each key once for an environment\n  remove one of the two lines\n"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'in.jsonl:1: no header: \'\'\n  expected {"format": "eqsat cost table", "version": 1}\n  write the table'),
        (line(), 'in.jsonl:1: no header: \'{"environment"'),
        (
            HEADER.replace("1}", "2}"),
            'in.jsonl:1: a table of version 2\n  expected {"format": "eqsat cost table", "ver',
        ),
        (HEADER.replace("1}", '"1"}'), "in.jsonl:1: a table of version '1'"),
    ],
)
def test_a_file_without_the_header_of_this_version_is_refused(run, text, message):
    Path("in.jsonl").write_text(text)
    code, _, err = run("import", "in.jsonl")
    assert (code, err.startswith(f"error: {message}")) == (2, True), err


def broken_rows(path):
    with CostTable(path) as held:
        held.put(ELSEWHERE, OpKey.parse("relu {} float32[2, 8]"), ENTRY)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE entries SET p10 = 9e999")
    connection.commit()
    connection.close()


def later(path):
    CostTable(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 7")
    connection.close()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda p: None,
            "cannot be read: No such file or directory\n  expected a file written by `eqsat costs export`",
        ),
        (lambda p: p.mkdir(), "cannot be read: Is a directory"),
        (lambda p: p.write_bytes(b"\xff\xfe"), "no text in UTF-8: invalid start byte at byte 0"),
        (lambda p: p.write_bytes(b"SQLite format 3\x00" + b"\xff" * 4096), "the cost table is damaged: "),
        (
            later,
            "a cost table of format 7\n  expected a cost table of format 1 to 3, which this version of eqsat reads",
        ),
        (broken_rows, "relu {} float32[2, 8]: p10 = inf\n  expected a finite number of seconds, 0 or more\n"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(run, folder, make, message):
    make(folder / "theirs.sqlite3")
    code, _, err = run("import", "theirs.sqlite3")
    assert (code, err.startswith(f"error: theirs.sqlite3: {message}")) == (2, True), err
    assert table() == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["measure", "--time-limit", "0s"], "--time-limit 0.0"),
        (["measure", "--device", "nvidia-h200"], "nvidia-h200 is not here to be measured"),
        (["measure", "--device", "abacus"], "no device 'abacus'"),
        (["measure", "missing.onnx"], "missing.onnx: the file cannot be read"),
        (["show", "--device", "abacus"], "no device 'abacus'"),
        (["show", "--op", "wave"], "no operator 'wave'"),
        (["show", "--limit", "-1"], "--limit -1"),
        (["show", "--sort", "beauty"], "Invalid value for '--sort'"),
        (["export", "none/out.jsonl"], "none/out.jsonl: the folder of the target does not exist"),
        (["import"], "Missing argument 'FILE...'"),
    ],
)
def test_bad_arguments_are_one_clear_error(run, arguments, message):
    code, _, err = run(*arguments)
    assert code == 2
    assert err.rpartition("error: ")[2].startswith(message), err
    assert "Traceback" not in err


def test_records_are_written_in_one_order():
    from eqsat.costs.table.entry import TableRecord

    records = [TableRecord(e, f"relu {{}} float32[{n}]", ENTRY) for e in (HERE, ELSEWHERE) for n in (3, 1, 2)]
    assert write_records(records) == write_records(records[::-1])
    assert np.all([json.loads(row) for row in write_records(records).splitlines()])
