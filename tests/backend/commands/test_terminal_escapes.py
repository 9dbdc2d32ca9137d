"""Names from a model on a terminal: escapes, markup and line ends in them are shown, and never obeyed."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto, helper
from rich.console import Console

import eqsat
from eqsat.errors import ImportModelError, printable

#: Clears the screen, sets the title, turns red, goes back in the line, and says the same in eight bits.
OBEYED = "\x1b[2J\x1b]0;title\x07\x1b[31m\rover\x9b5m\u202e"
MARKUP = "[red]a[/red][/b]:smile:"
SHOWN = r"\x1b[2J\x1b]0;title\x07\x1b[31m\x0dover\u009b5m\u202e"
#: What rich itself sends to a terminal: colours, the cursor, lines cleared.
_OWN = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[[12]?[AK]|\r")


def model(*, missing: bool = False) -> ModelProto:
    """A chain of operators, one of them unknown, whose names say things to a terminal and to rich."""
    nodes = [
        helper.make_node("Relu", ["x"], [f"h{OBEYED}"], name=f"n{OBEYED}{MARKUP}"),
        helper.make_node("Relu", [f"h{OBEYED}"], [f"g{MARKUP}"]),
        helper.make_node(f"Foo{OBEYED}", [f"missing{OBEYED}" if missing else f"g{MARKUP}"], [f"y{OBEYED}"]),
    ]
    nodes[-1].domain = "own"
    graph = helper.make_graph(
        nodes,
        f"g{OBEYED}",
        [helper.make_tensor_value_info("x", 1, [f"N{OBEYED}", 4])],
        [helper.make_tensor_value_info(f"y{OBEYED}", 1, [f"N{OBEYED}", 4])],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def on_a_terminal(folder: Path, *arguments: str) -> str:
    """What a command sends to a terminal, on both of its outputs."""
    reader, writer = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "eqsat", *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=writer,
        stderr=writer,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "300"},
    )
    os.close(writer)
    received = bytearray()
    while True:
        try:
            part = os.read(reader, 1 << 16)
        except OSError:  # the other side was closed
            break
        if not part:
            break
        received += part
    os.close(reader)
    process.wait()
    return received.decode()


@pytest.mark.parametrize(
    "arguments",
    [
        ("optimize", "m.onnx", "-o", "o[red]ut[/b].onnx", "--no-measure"),
        ("optimize", "m.onnx", "-o", "out.onnx"),
        ("inspect", "m.onnx", "--nodes"),
        ("inspect", "m.onnx", "--json"),
        ("inspect", "missing.onnx"),
        ("optimize", "missing.onnx", "-o", "out.onnx", "--debug"),
        ("optimize", f"no{OBEYED}.onnx", "-o", "out.onnx"),
        ("optimize", "m.onnx", "-o", "out.onnx", f"--{OBEYED}"),
    ],
    ids=" ".join,
)
def test_nothing_that_a_name_says_is_obeyed(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    onnx.save(model(), tmp_path / "m.onnx")
    onnx.save(model(missing=True), tmp_path / "missing.onnx")
    text = on_a_terminal(tmp_path, *arguments)
    assert "unexpected" not in text
    assert "\x1b[2J" not in text
    assert "\rover" not in text
    rest = _OWN.sub("", text.replace("\r\n", "\n"))
    assert printable(rest) == rest
    assert r"\x1b[2J" in text or r"\u001b[2J" in text or "--no-measure" in arguments


def test_a_file_that_is_named_like_markup_is_named_so(tmp_path: Path) -> None:
    onnx.save(model(), tmp_path / "m.onnx")
    target = f"o{MARKUP.replace('/', '')}.onnx"
    text = on_a_terminal(tmp_path, "optimize", "m.onnx", "-o", target, "--no-measure")
    assert f"wrote {target}" in text
    assert (tmp_path / target).exists()


def test_reports_and_errors_in_python_have_names_as_escapes() -> None:
    result = eqsat.optimize(model(), measure=False)
    for text in (str(result.report), _printed(result.report)):
        assert printable(text) == text
        assert SHOWN[:12] in text
    with pytest.raises(ImportModelError) as caught:
        eqsat.optimize(model(missing=True))
    assert printable(str(caught.value)) == str(caught.value)
    assert f"y{OBEYED}" in result.to_onnx().graph.output[0].name


def _printed(renderable: object) -> str:
    text = io.StringIO()
    Console(file=text, width=300, force_terminal=False).print(renderable)
    return text.getvalue()


def test_a_page_has_names_as_text(tmp_path: Path) -> None:
    given = model()
    given.graph.name = "</script><script>alert(1)</script>"
    given.graph.node[0].name = '"><img src=x onerror=alert(2)>'
    onnx.save(given, tmp_path / "m.onnx")
    on_a_terminal(tmp_path, "optimize", "m.onnx", "-o", "out.onnx", "--no-measure", "--html", "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script>alert(1)" not in page
    assert "<img src=x" not in page
    assert "\x1b" not in page
