"""The page on troubleshooting quotes messages as users meet them; the glossary has the words of reports."""

import importlib.util
import re
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import eqsat
from eqsat.errors import EqsatError
from eqsat.report.decision import kept
from tests.support.pages import ROOT

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")


def twice(name="twice"):
    g = eqsat.Graph(name)
    x = g.input("x", ("batch", 3))
    g.output("y", eqsat.relu(x + x))
    return g


def without_weights(folder):
    weight = numpy_helper.from_array(np.ones(3, np.float32), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "m.onnx", save_as_external_data=True, location="model.bin", size_threshold=0)
    (folder / "model.bin").unlink()
    return folder / "m.onnx"


def keras():
    return type("Sequential", (), {"__module__": "keras.src.models.sequential"})()


FAULTS = {
    "no file": (lambda f: eqsat.optimize("nope.onnx"), "the file cannot be read: No such file or directory"),
    "no weights": (lambda f: eqsat.optimize(without_weights(f)), "external data file 'model.bin' is missing"),
    "keras": (lambda f: eqsat.optimize(keras()), "a Sequential of Keras is not read as it is"),
    "type": (lambda f: result().run(x=np.ones((2, 3))), "input 'x' has element type float64"),
    "name": (lambda f: result().run(y=np.ones((2, 3))), "unknown input 'y'"),
    "position": (lambda f: result()(np.ones((2, 3))), "1 inputs without names"),
}


def result():
    return eqsat.optimize(twice(), measure=False)


@pytest.mark.parametrize("fault", FAULTS)
def test_messages_on_the_page_are_those_that_users_see(fault, folder):
    cause, words = FAULTS[fault]
    with pytest.raises(EqsatError) as caught:
        cause(folder)
    assert words in str(caught.value)
    assert f"`{words}`" in PAGE


def test_the_message_on_a_missing_gpu_is_on_the_page(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(EqsatError) as caught:
        eqsat.optimize(twice(), device="cuda")
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("no CUDA device is here: cupy is not installed")
    assert "no CUDA device is here: cupy is not installed" in PAGE
    assert lines[1] in PAGE


def test_the_message_on_a_missing_package_is_on_the_page(monkeypatch):
    from eqsat.errors import MissingExtraError
    from eqsat.explorer.page.widget import widget_class

    monkeypatch.setitem(sys.modules, "anywidget", None)
    widget_class.cache_clear()  # other tests may have made it

    with pytest.raises(MissingExtraError) as caught:
        eqsat.explore(twice(), time_limit=5.0).widget()
    assert str(caught.value) in PAGE


def test_reasons_for_keeping_the_original_are_on_the_page():
    """Every reason that the code can give for it."""
    import ast
    import inspect

    returned = [
        node.value.elts[1]
        for node in ast.walk(ast.parse(inspect.getsource(kept)))
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple)
        if isinstance(node.value.elts[0], ast.Name) and node.value.elts[0].id == "original"
    ]
    texts = [c.value for one in returned for c in ast.walk(one) if isinstance(c, ast.Constant)]
    assert len(texts) == 5
    assert [text for text in texts if f"`{text}`" not in PAGE] == []


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the extra 'torch': make test-torch")
def test_messages_on_modules_of_pytorch_are_on_the_page():
    import torch

    for call, words in (
        (lambda m: eqsat.optimize(m.eval()), "no example inputs"),
        (lambda m: eqsat.optimize(m.train(), torch.ones(2)), "the module is in training mode"),
    ):
        with pytest.raises(EqsatError, match=words):
            call(torch.nn.Linear(2, 2))
        assert f"`{words}`" in PAGE


def test_the_glossary_is_sorted_and_has_every_word_once():
    terms = re.findall(r"^\| ([^|]+?) \| [^|]+ \|$", GLOSSARY, re.M)[1:]
    assert len(terms) > 30
    assert terms == sorted(terms, key=str.lower)


def test_the_glossary_has_the_words_of_reports():
    terms = set(re.findall(r"^\| ([^|]+?) \| ", GLOSSARY, re.M))
    assert {"e-graph", "e-class", "e-node", "saturation", "gap", "bound", "radius", "opaque", "greedy"} <= terms
    report = str(eqsat.optimize(twice(), measure=False).report)
    for word, term in (
        ("e-nodes", "e-node"),
        ("e-classes", "e-class"),
        ("gap", "gap"),
        ("bound", "bound"),
        ("greedy", "greedy"),
        ("opaque", "opaque"),
        ("backtracking", "backtracking"),
        ("estimated share", "estimated share"),
    ):
        assert word in report
        assert term in terms
