"""Pruning: which rules stay, why the others go, and that what stays proves them."""

import json

import pytest

from eqsat.rewrites.discovery.equations.derivable import claims, derivable, derivations
from eqsat.rewrites.discovery.journal import Journal, subject_of
from eqsat.rewrites.discovery.library import read_dropped
from eqsat.rewrites.discovery.prune import DERIVABLE, RENAMING, SPECIAL, SUBGRAPH, prune
from eqsat.rewrites.rules.loader import laws, shipped_rules
from eqsat.rewrites.rules.parser import parse_rules

FACTOR = "factor: x * z + y * z => (x + y) * z if wide(x), finite(x, y, z), same_shape(x, y)"


def rules(text):
    return list(parse_rules(text, origin="candidate"))


def why(pruned):
    return {name: (drop.why, drop.by) for name, drop in pruned.dropped.items()}


def test_the_pair_of_published_figure_4a_leaves_the_general_rule():
    """Two variables of the one are the same in the other; the order of operands and the names differ too."""
    given = rules("special: b @ a + b @ a => b @ (a + a) if rank(a) == 2\ngeneral: x @ y + x @ z => x @ (y + z)")
    found = prune(given, [])
    assert [r.name for r in found.kept] == ["general"]
    assert why(found) == {"special": (SPECIAL, ("general",))}


def test_the_pair_of_published_figure_4b_leaves_what_the_common_input_says():
    """Both sides compute relu(x), of which nothing else is asked."""
    given = rules("common: relu(x) * z + y * z => (y + relu(x)) * z if wide(y), finite(x, y, z), same_shape(x, y)")
    found = prune(given, [])
    (kept,) = found.kept
    assert kept.name == "common-lifted" and "relu" not in kept.text
    assert found.dropped["common"].why == SUBGRAPH
    assert found.lifted == {"common-lifted": kept}
    assert derivable(given[0], found.kept)


def test_the_pair_of_published_figure_4c_leaves_what_the_common_output_hides():
    given = rules("common: tanh(-(-x)) @ w => tanh(x) @ w")
    found = prune(given, [])
    assert [r.text for r in found.kept] == ["--x => x"]
    assert found.dropped["common"].why == SUBGRAPH


def test_a_special_rule_stays_where_the_rule_without_the_common_part_is_false():
    """The activation hides a difference: without it the rest is refuted, so the rule with it stays."""
    (given,) = rules("hidden: relu(relu(x) - abs(x)) => relu(x - abs(x)) if floating(x)")
    found = prune([given], [])
    assert list(found.kept) == [given] and not found.dropped


def test_what_laws_or_others_derive_goes_with_the_rules_of_its_proof():
    given = rules(
        "thrice: relu(relu(relu(x))) => relu(x)\n"
        "turned: transpose(transpose(x, perm=(1, 0)), perm=(1, 0)) => x\n"
        "once: relu(relu(x)) => relu(x)\n"
        "again: relu(relu(y)) => relu(y)\n"
    )
    compose, gone = rules(
        "compose: transpose(transpose(x, perm=p), perm=q) => transpose(x, perm=compose(p, q))\n"
        "gone: transpose(x, perm=p) => x if p == identity_perm(rank(x))"
    )
    found = prune(given, [compose, gone])
    assert [r.name for r in found.kept] == ["once"]
    assert why(found) == {
        "again": (RENAMING, ("once",)),
        "thrice": (DERIVABLE, ("once",)),
        "turned": (DERIVABLE, ("compose", "gone")),
    }


def test_rules_that_others_do_not_derive_all_stay():
    given = rules(f"{FACTOR}\nrelu-relu: relu(relu(x)) => relu(x)\nneg: -(-x) => x")
    assert {r.name for r in prune(given, []).kept} == {"factor", "relu-relu", "neg"}


def test_weaker_conditions_are_not_derived_from_stronger_ones():
    """A rule for every type is more than one for wide floats, one without finiteness more than one with it."""
    strong, weak = rules("strong: x @ y + x @ z => x @ (y + z) if wide(x)\nweak: x @ y + x @ z => x @ (y + z)")
    assert derivable(strong, [weak])
    assert not derivable(weak, [strong])
    finite, any_ = rules("finite: x - x => x * (x - x) if finite(x)\nany: x - x => x * (x - x)")
    assert derivable(finite, [any_]) and not derivable(any_, [finite])


def test_siblings_are_derived_by_merging():
    (pair,) = rules(
        "%phase merge\n"
        "pair: x @ v, x @ w => split(x @ concat(v, w, axis=1), axis=1, sizes=(dim(v, 1), dim(w, 1)))"
        " if rank(x) == 2, rank(v) == 2, rank(w) == 2, dim(v, 0) == dim(w, 0)"
    )
    (group,) = rules(
        "group: [x @ w for w in ws] => split(x @ concat(*ws, axis=1), axis=1, sizes=[dim(w, 1) for w in ws])"
        " if rank(x) == 2, all(rank(w) == 2 and dim(w, 0) == dim(ws[0], 0) for w in ws)"
    )
    found = derivable(pair, [group])
    assert found.rules == ("group",) and found.instances == len(claims(pair))


def test_many_claims_share_an_egraph_without_helping_one_another():
    """The instances of false equations stay apart however many true ones surround them."""
    given = [r for r in shipped_rules() if r.is_equation][::40]
    (wrong,) = rules("wrong: relu(x) => abs(x) if floating(x)")
    found = derivations([c for r in (*given, wrong) for c in claims(r)], given)
    assert not found["wrong"]
    assert [n for n, d in found.items() if not d] == ["wrong"]


def test_pruning_goes_on_where_it_was_interrupted(tmp_path):
    given = rules("thrice: tanh(-(-x)) => tanh(x)\nonce: -(-x) => x\nother: relu(relu(x)) => relu(x)")
    subject = subject_of(r.text for r in given)
    reached = []

    def stop(stage, done, total):
        reached.append(stage)
        if stage == "by one another":
            raise KeyboardInterrupt

    path = tmp_path / "rules.partial"
    with pytest.raises(KeyboardInterrupt), Journal(path, subject) as journal:
        prune(given, [], journal=journal, progress=stop)
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines) + '\n["cut off')  # as a kill in the middle of a line leaves it
    calls = []

    def verify(rule):
        calls.append(rule)
        raise AssertionError("verified again")

    with Journal(path, subject) as journal:
        again = prune(given, [], journal=journal, verify=verify)
    assert not path.exists() and not calls
    fresh = prune(given, [])
    assert (again.kept, again.dropped) == (fresh.kept, fresh.dropped)


def test_a_journal_of_another_input_is_forgotten(tmp_path):
    path = tmp_path / "journal"
    journal = Journal(path, "one")
    journal["key"] = 1
    assert "key" in Journal(path, "one")
    assert "key" not in Journal(path, "other")
    assert json.loads(path.read_text().splitlines()[0]) == {"subject": "other"}


def test_what_the_committed_library_left_out_follows_from_what_it_has():
    """Every rule that pruning dropped, proved once more by saturation with laws and library alone."""
    known = [*laws(), *(r for r in shipped_rules() if r.origin == "library")]
    names = {r.name for r in known}
    drops = read_dropped()
    text = "\n".join(f"%phase {d.phase}\n{d.name}: {d.text}" for d in drops)
    assert all(set(d.by) <= names for d in drops if d.why == DERIVABLE)
    found = derivations([c for r in rules(text) for c in claims(r)], known)
    assert [d.name for d in drops if not found[d.name]] == []
