"""Laws hold together: none is false, none makes variables equal, and those that follow from others are listed."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from eqsat import cli
from eqsat.rewrites.instances.instance import draw
from eqsat.rewrites.proof.consistency import check_laws, collapse
from eqsat.rewrites.rules.parser import parse_rules

LAWS = """
commutes: x + y => y + x
times-commutes: x * y => y * x
relu-relu: relu(relu(x)) => relu(x)
compose: transpose(transpose(x, perm=p), perm=q) => transpose(x, perm=compose(p, q))
relu-turned: relu(transpose(x, perm=p)) <=> transpose(relu(x), perm=p)
"""


def checks(extra="", **options):
    return {check.name: check for check in check_laws(parse_rules(LAWS + extra, origin="candidate"), **options)}


def test_sound_and_independent_laws_pass():
    found = checks()
    assert {c.verdict for c in found.values()} == {"holds"}
    assert not [c.name for c in found.values() if c.redundant]


def test_several_laws_at_once_are_found_the_same_and_in_order():
    extra = "thrice: relu(relu(relu(x))) => relu(x)\nwrong: relu(-x) => -relu(x)\n"
    extra += "neg-neg: -(-x) => x\nabs-neg: abs(-x) => abs(x)\n"  # more than one task
    one = checks(extra)
    with ThreadPoolExecutor(2) as executor:
        several = checks(extra, executor=executor)
    assert list(several.items()) == list(one.items())
    assert several["thrice"].redundant and several["wrong"].verdict == "false"


@pytest.mark.parametrize("planted", ["relu(x) + y => x", "x * y => y"])
def test_a_law_that_makes_all_tensors_equal_is_caught(planted):
    found = checks(f"planted: {planted}", redundancy=False)
    assert found["planted"].verdict == "false"
    assert "differs by" in found["planted"].detail


def test_variables_that_become_equal_are_caught_without_any_arithmetic():
    laws = parse_rules(LAWS + "planted: relu(x) + relu(y) => x if same_shape(x, y)")
    (law,) = (one for one in laws if one.name == "planted")
    assert set(collapse(law, laws, draw(law, 10)) or ()) == {"commutes", "planted"}
    (fine,) = (one for one in laws if one.name == "relu-relu")
    assert collapse(fine, laws, draw(fine, 10)) is None


@pytest.mark.parametrize(
    ("planted", "because"),
    [
        ("relu(relu(relu(x))) => relu(x)", {"relu-relu"}),
        ("transpose(transpose(relu(x), perm=p), perm=q) => relu(transpose(x, perm=compose(p, q)))", {"compose"}),
    ],
)
def test_a_law_that_the_others_entail_is_reported(planted, because):
    found = checks(f"planted: {planted}")
    assert found["planted"].verdict == "holds"
    assert because <= set(found["planted"].redundant)
    assert found["planted"].method in ("z3", "chain")
    assert [c.name for c in found.values() if c.redundant] == ["planted"]


def test_a_law_without_instances_is_undecided():
    assert checks("never: relu(x) => sigmoid(x) if rank(x) == 9")["never"].verdict == "undecided"


def test_the_command_lists_what_is_wrong_and_what_is_redundant(tmp_path, capsys):
    path, written = tmp_path / "laws.rules", tmp_path / "laws.json"
    path.write_text(LAWS + "planted: relu(relu(relu(x))) => relu(x)\n")
    assert cli.run(["rules", "check-laws", str(path), "--json", str(written)]) == 0
    out = capsys.readouterr().out
    assert out == "redundant    planted: follows from relu-relu (z3)\n7 laws: 7 holds, 1 redundant\n"
    assert [c["name"] for c in json.loads(written.read_text()) if c["redundant"]] == ["planted"]
    path.write_text(LAWS + "planted: relu(x) + y => x\n")
    assert cli.run(["rules", "check-laws", str(path), "--no-redundancy"]) != 0
    captured = capsys.readouterr()
    assert "false        planted: float64 differs by " in captured.out
    assert "1 law false or inconsistent: planted" in captured.err
