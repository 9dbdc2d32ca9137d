"""The line that `make demo` ends with for each model."""

from __future__ import annotations

import json
import re

import onnx
from onnx import parser

from benchmarks import demo
from eqsat.runtime.measure import Timings


def test_the_ratio_that_the_demo_prints_is_the_one_that_is_bounded(tmp_path, monkeypatch):
    """One round that only the new version was disturbed in moves the quotient of medians, and no median of ratios."""
    path = tmp_path / "m.onnx"
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2, 3] x) => (float[2, 3] y) { y = Relu (x) }'
    onnx.save(parser.parse_model(text), path)
    old = tuple(float(i) for i in range(1, 22))
    new = tuple(11.4 if t == 11 else t for t in old)
    monkeypatch.setattr(demo, "interleaved", lambda *args, **kwargs: Timings({"old": old, "new": new}, "wall"))
    _, line = demo.compare("m", path, path)
    ratio, bound = (float(text) for text in re.search(r"new/old ([\d.]+), at most ([\d.]+)", line).groups())
    assert ratio <= bound
    assert ratio == 1.0


def test_the_range_in_the_readme_is_that_of_the_machines_it_was_measured_on():
    rows = json.loads(demo.RESULTS.read_text(encoding="utf-8"))
    readme = (demo.RESULTS.parents[2] / "README.md").read_text(encoding="utf-8")
    for row in rows:
        name = "Intel Xeon" if "Xeon" in row["cpu"] else "AMD EPYC"
        assert f"{row['models']['sru_text_classifier']['ratio']:.2f} on an {name}" in re.sub(r"\s+", " ", readme)
