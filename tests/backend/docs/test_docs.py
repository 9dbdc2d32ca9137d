"""What the pages tell readers to type works: Python, shell lines, links, and notebooks."""

import doctest
import re
import shlex
import shutil
from importlib.util import find_spec
from pathlib import Path

import click
import onnx
import pytest

from benchmarks import compare
from benchmarks.models import load
from benchmarks.models.sru import sru_text_classifier
from eqsat import cli
from tests.support import pages

ROOT = Path(__file__).parents[3]
PAGES = [*ROOT.glob("*.md"), ROOT / "benchmarks" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MAKE_TARGETS = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)


#: Pages with files to write: their steps build on one another. One is followed where what it leaves is looked at.
TOLD = [p for p in PAGES if pages.tells_files(p)]
ELSEWHERE = {
    "first-hour.md": "tests/backend/installing/test_first_hour.py",
    "declare-an-operator.md": "tests/backend/docs/test_own_operator.py",
    "plug-ins.md": "tests/backend/docs/test_plug_ins.py",
    "frameworks.md": "tests/backend/frameworks/test_page.py",
    "pytorch.md": "tests/backend/pytorch/test_page.py",
}


def blocks(language):
    """Every fenced block of a language, by the page it stands on and its number there."""
    found = {}
    for page in PAGES:
        if page in TOLD:
            continue
        texts = re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
        found |= {f"{page.relative_to(ROOT)}-{number}": text for number, text in enumerate(texts)}
    return found


PYTHON = blocks("python")
SHELL = [*dict.fromkeys(line for block in blocks("sh").values() for line in block.splitlines())]
RULES = "".join(blocks("rules").values())


@pytest.fixture(scope="session")
def demo_models(tmp_path_factory):
    """The demo's model, and one of fewer steps, written once: each takes longer to make than most tests take."""
    place = tmp_path_factory.mktemp("demo")
    onnx.save(load("sru_text_classifier"), place / "sru_text_classifier.onnx")
    onnx.save(sru_text_classifier(steps=5), place / "fewer_steps.onnx")
    return place


@pytest.fixture
def folder(tmp_path, monkeypatch, demo_models):
    """A folder such as `make demo` leaves behind, with the rules of the pages in mine.rules."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EQSAT_COST_TABLE", str(tmp_path / "costs.sqlite3"))
    (tmp_path / "demo").mkdir()
    shutil.copy(demo_models / "sru_text_classifier.onnx", "demo")
    Path("mine.rules").write_text(RULES)
    return tmp_path


@pytest.mark.parametrize("block", PYTHON)
def test_python_on_the_pages_runs(block, folder, capsys):
    exec(compile(PYTHON[block], block, "exec"), {"__name__": "page"})
    assert capsys.readouterr().out


@pytest.mark.parametrize("line", SHELL, ids=str)
def test_shell_lines_on_the_pages_work(line, folder, demo_models):
    """On the demo's model with fewer steps, but for what is said of its size."""
    if "--limit" not in line:
        shutil.copy(demo_models / "fewer_steps.onnx", "demo/sru_text_classifier.onnx")
    program, *arguments = shlex.split(line)
    if program == "make":
        assert set(arguments) <= set(MAKE_TARGETS)
    else:
        assert program == "eqsat", f"nothing here runs {line!r}"
        before = set(Path().rglob("*"))
        assert cli.run(arguments) == 0
        written = {a for a in arguments if a.endswith((".onnx", ".json")) and Path(a) not in before}
        assert all(Path(name).stat().st_size for name in written)


@pytest.mark.parametrize("page", [p for p in TOLD if p.name not in ELSEWHERE], ids=lambda p: str(p.relative_to(ROOT)))
def test_a_page_that_writes_files_works_from_top_to_bottom(page, tmp_path):
    pages.follow(page, tmp_path)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_page_that_is_followed_elsewhere_is(name):
    assert name in {p.name for p in TOLD}
    assert re.search(rf'^    follow\(ROOT / "docs" / "{name}"', (ROOT / ELSEWHERE[name]).read_text(), re.M)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_every_decision_is_listed_in_order():
    listed = re.findall(r"\(adr/(.+?)\)", (ROOT / "docs" / "README.md").read_text())
    assert listed == sorted(p.name for p in (ROOT / "docs" / "adr").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_doctests_on_the_pages_hold(page):
    text = page.read_text(encoding="utf-8")
    found = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    assert doctest.DocTestRunner().run(found).failed == 0


def commands_of(page):
    """Command lines of eqsat that a page shows or speaks of, those that need a GPU or a day included."""
    text = page.read_text(encoding="utf-8")
    shown = [line for block in re.findall(r"^```text\n(.*?)^```", text, re.M | re.S) for line in block.splitlines()]
    yield from (line.split("#")[0] for line in shown if line.startswith("eqsat "))
    yield from (" ".join(line.split()) for line in re.findall(r"`(eqsat(?: [^`|]+?)?)`", text))


COMMANDS = sorted({(page, line) for page in PAGES for line in commands_of(page)})


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=[f"{p.stem}-{line}"[:60] for p, line in COMMANDS])
def test_commands_that_pages_speak_of_exist(page, line):
    """Every command and option is one, whether or not the line could be run here."""
    words = shlex.split(line)[1:]
    command = cli.commands
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        assert words[0] in command.commands, f"{page.name}: no command {line!r}"
        command = command.commands[words.pop(0)]
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    asked = [word.partition("=")[0] for word in words if word.startswith("-") and word not in ("-", "…")]
    assert set(asked) <= options | {"--help"}, f"{page.name}: {line!r}"


def test_modules_and_variables_that_pages_name_exist():
    folders = ("eqsat", "benchmarks", "tests")
    sources = "\n".join(p.read_text(encoding="utf-8") for f in folders for p in (ROOT / f).rglob("*.py"))
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for module in re.findall(r"python -m ([\w.]+)", text):
            assert find_spec(module) is not None, f"{page.name} names {module}"
        for variable in re.findall(r"\bEQSAT_[A-Z_]+\b", text):
            assert variable in sources, f"{page.name} names {variable}"


def test_the_files_that_pages_name_exist():
    for page in PAGES:
        for name in re.findall(r"`((?:eqsat|tests|benchmarks|docs|notebooks)/[\w/.*{}-]+)`", page.read_text()):
            assert list(ROOT.glob(name.rstrip("/"))), f"{page.name} names {name}"


def test_the_figures_of_the_comparison_are_those_of_the_files():
    page = compare.PAGE.read_text(encoding="utf-8")
    assert page == compare.rewritten(page, compare.read_results()), "run python -m benchmarks.compare"
    shown = re.findall(r"<!-- figures: (\w+) -->", page)
    assert sorted(shown) == sorted(compare.FIGURES)


def test_the_figures_of_the_page_on_pytorch_are_those_of_the_file():
    page = compare.TORCH_PAGE.read_text(encoding="utf-8")
    assert page == compare.rewritten(page, compare.read_results()), "run python -m benchmarks.compare"
    assert re.findall(r"<!-- figures: (\w+) -->", page) == ["torch"]
    assert "Not measured yet" in compare.torch({}) and "torch.json" in compare.torch({})


def test_the_figures_of_the_page_on_growth_are_those_of_the_file():
    page, results = compare.GROWTH_PAGE.read_text(encoding="utf-8"), compare.read_results()
    assert page == compare.rewritten(page, results), "run python -m benchmarks.compare"
    assert re.findall(r"<!-- figures: (\w+) -->", page) == ["phases", "growth"]
    row = results["growth"]["models"][-1]
    twice = {phase: one | {"seconds": 2 * one["seconds"]} for phase, one in row["phases"].items()}
    models = [*results["growth"]["models"][:-1], row | {"phases": twice}]
    assert compare.rewritten(page, {**results, "growth": {**results["growth"], "models": models}}) != page


def test_the_comparison_has_no_figure_of_ours_outside_what_is_written_from_files():
    page = re.sub(r"<!-- figures: .*?<!-- end of figures -->", "", compare.PAGE.read_text(encoding="utf-8"), flags=re.S)
    theirs = re.search(r"^## What their papers report\n.*?(?=^## )", page, re.M | re.S)
    assert theirs is not None
    rows = [row for row in theirs[0].splitlines() if row.startswith("| ")][1:]
    assert len(rows) > 3
    assert all(re.search(r"(?:SOSP|OSDI|POPL|MLSys) 20\d\d \|$", row) for row in rows), (
        "a figure of a paper without its source"
    )
    ours = re.sub(r"\b(?:SOSP|OSDI|POPL|MLSys) 20\d\d|float(?:32|64)|Z3", "", page.replace(theirs[0], ""))
    assert re.findall(r"\d[\d.]*", ours) == []


def test_a_figure_that_a_file_does_not_have_is_found():
    results = compare.read_results()
    page = compare.PAGE.read_text(encoding="utf-8")
    row = results["models"]["models"][0]
    changed = {
        **results,
        "models": {**results["models"], "models": [row | {"ratio": 0.5}, *results["models"]["models"][1:]]},
    }
    assert compare.rewritten(page, changed) != page
