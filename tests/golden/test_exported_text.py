"""What a small dynamic model becomes, in ONNX's own textual form, from reading to writing."""

from __future__ import annotations

from pathlib import Path

from onnx import parser, printer

from eqsat.language.onnx.read.importer import load
from eqsat.language.onnx.write.exporter import to_model

HERE = Path(__file__).parent


def test_attention_with_computed_shapes() -> None:
    model = parser.parse_model((HERE / "attention_in.txt").read_text())
    assert printer.to_text(to_model(load(model))) + "\n" == (HERE / "attention_out.txt").read_text()


def test_the_same_for_an_older_opset() -> None:
    model = parser.parse_model((HERE / "attention_in.txt").read_text())
    assert printer.to_text(to_model(load(model), 11)) + "\n" == (HERE / "attention_opset11_out.txt").read_text()
