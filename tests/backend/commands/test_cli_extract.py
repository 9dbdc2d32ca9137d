"""`eqsat extract`: what it prints and writes, how Ctrl-C ends it, what it refuses."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


EGRAPH = {
    "nodes": {
        "root": {"op": "f", "children": ["dear"], "eclass": "r", "cost": 1},
        "dear": {"op": "g", "children": [], "eclass": "a", "cost": 5},
        "cheap": {"op": "h", "children": [], "eclass": "a", "cost": 2},
    },
    "root_eclasses": ["r"],
}


def test_extract_from_a_file(run):
    Path("graph.json").write_text(json.dumps(EGRAPH))
    code, out, _ = run("extract", "graph.json")
    assert (code, out.startswith("optimal: cost 3, bound 3, gap 0 %, 2 e-nodes of 3, ")) == (0, True)
    code, out, err = run("extract", "graph.json", "--json", "-", "--time-limit", "60")
    found = json.loads(out)
    assert (code, err, found.pop("seconds") >= 0, sorted(found.pop("chosen"))) == (0, "", True, ["cheap", "root"])
    assert found == {"extractor": "ilp", "status": "optimal", "cost": 3.0, "lower_bound": 3.0, "gap": 0.0}


def test_extract_writes_json_and_says_so(run, folder):
    Path("graph.json").write_text(json.dumps(EGRAPH))
    Path("out.json").write_text("old")
    code, out, _ = run("extract", "graph.json", "--json", "out.json", "--extractor", "backtracking", "--alpha", "1.1")
    found = json.loads(Path("out.json").read_text())
    assert (code, out.splitlines()[-1]) == (0, "wrote out.json")
    assert (found["extractor"], found["cost"], sorted(found["chosen"])) == ("backtracking", 3.0, ["cheap", "root"])
    assert sorted(p.name for p in folder.iterdir()) == ["graph.json", "out.json"]


def test_extract_ends_with_the_best_so_far_on_ctrl_c(tmp_path):
    """A vertex cover that takes far longer than the test; the search has begun when the bar shows a gap."""
    draw = random.Random(5)
    nodes = {f"v{i}": {"op": "v", "eclass": f"v{i}", "cost": 1} for i in range(240)}
    for i in range(960):
        nodes |= {
            f"e{i}.{j}": {"op": "e", "eclass": f"e{i}", "cost": 0, "children": [f"v{draw.randrange(240)}"]}
            for j in range(2)
        }
    nodes["top"] = {"op": "t", "eclass": "top", "cost": 0, "children": [f"e{i}.0" for i in range(960)]}
    (tmp_path / "hard.json").write_text(json.dumps({"nodes": nodes, "root_eclasses": ["top"]}))
    command = [sys.executable, "-m", "eqsat", "extract", tmp_path / "hard.json", "--time-limit", "120"]
    command += ["--json", tmp_path / "out.json"]
    master, slave = os.openpty()
    # A shell may have taken Ctrl-C away from what runs in the background, which processes inherit.
    working = subprocess.Popen(
        command,
        stderr=slave,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "120"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    os.close(slave)
    shown = b""
    with contextlib.suppress(OSError):  # what reading a terminal ends with once nobody writes to it
        while part := os.read(master, 4096):
            if b"gap" in shown and b"stopping" not in shown and b"gap" not in shown[: -len(part)]:
                working.send_signal(signal.SIGINT)
            shown += part
    out, _ = working.communicate()
    os.close(master)
    found = json.loads((tmp_path / "out.json").read_text())
    assert (working.returncode, found["status"]) == (0, "interrupted")
    assert 0 < found["lower_bound"] < found["cost"]
    assert out.decode().startswith(f"interrupted: cost {found['cost']:g}, bound {found['lower_bound']:g}, gap ")
    assert b"best" in shown
    assert b"press Ctrl-C again to abort" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.json"], "missing.json: cannot be read: No such file or directory"),
        (["."], ".: cannot be read: Is a directory"),
        (["graph.json", "--time-limit", "-1s"], "time_limit=-1.0"),
        (["graph.json", "--extractor", "best"], "no extractor 'best'\n  expected one of backtracking, greedy, ilp"),
        (["graph.json", "--alpha", "1.1"], "alpha=1.1 with extractor='ilp'"),
        (["graph.json", "--extractor", "backtracking", "--alpha", "0"], "alpha=0.0\n  expected a factor above 0"),
        (["graph.json", "--json", "graph.json"], "graph.json: the target is the input"),
        (["graph.json", "--json", "no/out.json"], "no/out.json: the folder of the target does not exist"),
        (["graph.json", "--json", "."], ".: the target is a folder"),
    ],
)
def test_bad_input_is_one_clear_error(run, arguments, message):
    Path("graph.json").write_text(json.dumps(EGRAPH))
    code, out, err = run("extract", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
    assert json.loads(Path("graph.json").read_text()) == EGRAPH
