"""Models of equal blocks, of which a few are grown and chosen for and stand for the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import eqsat
from benchmarks.models.encoder import encoder
from eqsat.errors import CertificateError
from eqsat.language.graphs import repeats
from eqsat.language.terms import Graph
from eqsat.report.result import Result
from eqsat.runtime.backend import select
from eqsat.steps.blocks import whole as blocks

DEVICE, BLOCKS, SIZE = "onnxruntime-cpu", 7, 64
QUIET = {"measure": False, "cache": False, "strict": True}

Block = Callable[[eqsat.Graph, eqsat.Tensor, int], eqsat.Tensor]


def weight(g: eqsat.Graph, number: int, *shape: int) -> eqsat.Tensor:
    return g.constant(np.random.default_rng(number).standard_normal(shape).astype(np.float32) / 8)


def block(g: eqsat.Graph, x: eqsat.Tensor, number: int) -> eqsat.Tensor:
    """A block with something to find: an activation that is spelled out, and two products of one operand."""
    gate = x @ weight(g, 4 * number, SIZE, SIZE) + weight(g, 4 * number + 1, SIZE)
    up = x @ weight(g, 4 * number + 2, SIZE, SIZE)
    return eqsat.layer_norm(x + gate * eqsat.sigmoid(gate) * up, weight(g, 4 * number + 3, SIZE), axis=-1)


def chain(one: Block = block, count: int = BLOCKS, every: bool = False) -> Graph:
    g = eqsat.Graph("chain")
    x = g.input("x", (4, SIZE))
    for number in range(count):
        x = one(g, x, number)
        if every:
            g.output(f"hidden{number}", x)
    g.output("y", eqsat.softmax(x, axis=-1))
    return g.build()


def optimised(graph: Graph, **options: object) -> Result:
    return eqsat.optimize(graph, **{"device": DEVICE, **QUIET, **options})  # type: ignore[arg-type]


@pytest.fixture
def alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large e-graphs and small ones are grown alike: small ones go deeper else, and find more than the whole does."""
    monkeypatch.setattr("eqsat.steps.growing.SMALL", 0)


def whole(monkeypatch: pytest.MonkeyPatch, graph: Graph, **options: object) -> Result:
    """The result where no block stands for another."""
    with monkeypatch.context() as patch:
        patch.setattr("eqsat.run.condensed", lambda graph: None)
        return optimised(graph, **options)


def check_outputs(result: Result, graph: Graph) -> None:
    rng = np.random.default_rng(0)
    inputs = {n: rng.standard_normal(tuple(map(int, graph.type(n).static))).astype(np.float32) for n in graph.inputs}
    given, found = (select("numpy").compile(g).run(inputs) for g in (graph, result.graph))
    assert list(given) == list(found)
    for name in given:
        np.testing.assert_allclose(found[name], given[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("device", [DEVICE, "nvidia-h200"])
@pytest.mark.parametrize("every", [False, True])
def test_the_choice_is_that_of_the_whole_and_certified(alike, monkeypatch, device, every):
    graph = chain(every=every)
    result, other = optimised(graph, device=device), whole(monkeypatch, graph, device=device)
    assert [(one.count, one.grown) for one in result.report.blocks] == [(BLOCKS, 3)]
    assert not other.report.blocks
    assert result.report.cost_after == pytest.approx(other.report.cost_after, rel=1e-9)
    assert result.report.cost_before == pytest.approx(other.report.cost_before, rel=1e-9)
    assert result.report.cost_after < 0.95 * result.report.cost_before
    assert result.report.nodes_after == other.report.nodes_after
    assert result.report.certificate.kind == other.report.certificate.kind == "exact"
    assert result.report.nodes_grown < other.report.nodes_grown == len(graph.nodes)
    if device == DEVICE:
        check_outputs(result, graph)


def test_the_report_counts_changes_in_all_blocks(alike, monkeypatch):
    graph = chain()
    result, other = optimised(graph), whole(monkeypatch, graph)
    assert "3 of 7 equal blocks of" in str(result.report)

    def told(one: Result) -> list[tuple[object, ...]]:
        return sorted((c.what, c.places, c.nodes, sorted(c.values)) for c in one.explain().changes if c.nodes)

    assert told(result) == told(other)
    saved = sum(change.predicted or 0.0 for change in result.explain().changes)
    assert saved == pytest.approx(result.report.cost_before - result.report.cost_after, rel=1e-6)
    made = {o for node in result.graph.nodes for o in node.outputs}
    assert all(made.issuperset(change.made) for change in result.explain().changes)


def test_an_encoder_of_many_layers_is_the_choice_of_one_layer(alike, monkeypatch):
    model = encoder(6)
    result, other = optimised(model), whole(monkeypatch, model)
    assert [one.count for one in result.report.blocks] == [6]
    assert result.report.cost_after == pytest.approx(other.report.cost_after, rel=1e-9)
    assert result.report.operators_after == other.report.operators_after
    assert result.report.warnings == other.report.warnings  # of ONNX Runtime's own operators, for one
    assert result.report.certificate.kind == "exact"


def test_blocks_with_inputs_and_outputs_of_their_own_keep_them_in_order():
    def cached(g: eqsat.Graph, x: eqsat.Tensor, number: int) -> eqsat.Tensor:
        keys = eqsat.concat([g.input(f"past{number}", (6, SIZE)), x @ weight(g, 2 * number, SIZE, SIZE)], axis=0)
        g.output(f"present{number}", keys)
        scores = eqsat.softmax(x @ eqsat.transpose(keys, perm=(1, 0)) / 8.0, axis=-1)
        return eqsat.layer_norm(x + scores @ keys, weight(g, 2 * number + 1, SIZE), axis=-1)

    graph = chain(cached)
    result = optimised(graph)
    assert [one.count for one in result.report.blocks] == [BLOCKS]
    assert result.graph.inputs == graph.inputs
    assert list(result.graph.outputs) == list(graph.outputs)
    check_outputs(result, graph)


def mixed(g: eqsat.Graph, x: eqsat.Tensor, number: int) -> eqsat.Tensor:
    """A block of ConvNeXt, whose channels come last and go back: the last block takes from it what others do not."""
    channels = 16
    y = eqsat.conv(x, weight(g, 9 * number, channels, 1, 3, 3), pads=(1, 1, 1, 1), group=channels)
    y = eqsat.transpose(y, perm=(0, 2, 3, 1))
    y = eqsat.layer_norm(y, weight(g, 9 * number + 1, channels), weight(g, 9 * number + 2, channels), axis=-1)
    y = y @ weight(g, 9 * number + 3, channels, 4 * channels) + weight(g, 9 * number + 4, 4 * channels)
    y = y * 0.5 * (eqsat.erf(y / 2.0**0.5) + 1.0)
    y = y @ weight(g, 9 * number + 5, 4 * channels, channels) + weight(g, 9 * number + 6, channels)
    return x + eqsat.transpose(y * weight(g, 9 * number + 7, channels), perm=(0, 3, 1, 2))


def test_steps_that_the_last_block_alone_needs_are_in_no_other(alike, monkeypatch):
    g = eqsat.Graph("convnext")
    x = g.input("x", (1, 16, 8, 8))
    for number in range(BLOCKS):
        x = mixed(g, x, number)
    last = eqsat.transpose(x, perm=(0, 2, 3, 1))
    last = eqsat.layer_norm(last, weight(g, 1000, 16), weight(g, 1001, 16), axis=-1)
    g.output("y", eqsat.conv(eqsat.transpose(last, perm=(0, 3, 1, 2)), weight(g, 1002, 32, 16, 2, 2), strides=(2, 2)))
    graph = g.build()
    result, other = optimised(graph), whole(monkeypatch, graph)
    assert [one.count for one in result.report.blocks] == [BLOCKS]
    assert result.report.cost_after <= other.report.cost_after * (1 + 1e-9)
    assert result.report.certificate.kind == other.report.certificate.kind
    check_outputs(result, graph)


def read_twice(g: eqsat.Graph, x: eqsat.Tensor, number: int) -> eqsat.Tensor:
    """A block that ends with a product, and begins with another of it beside its norm."""
    narrow, wide, skipped = (weight(g, 3 * number + i, 16, 16) for i in range(3))
    start = x if x.shape[-1] == 16 else x @ weight(g, 99, x.shape[-1], 16)
    normed = eqsat.layer_norm(start, weight(g, 100 + number, 16), axis=-1)
    return eqsat.relu(normed @ wide + start @ skipped) @ narrow


def test_outputs_that_are_made_with_what_the_next_block_reads_are_those_of_each():
    """The product that ends a block and the next one's product of it are made at once, in the next block."""
    graph = chain(read_twice, count=8, every=True)
    result = optimised(graph, device="nvidia-h200")
    assert not result.report.warnings and [one.grown for one in result.report.blocks] == [3]
    joined = [n for n in result.graph.nodes if n.op == "slice" and n.outputs[0] in graph.outputs.values()]
    assert len(joined) >= 5
    check_outputs(result, graph)


def two_stages(g: eqsat.Graph, x: eqsat.Tensor, number: int) -> eqsat.Tensor:
    if number < BLOCKS:
        return block(g, x, number)
    wide = eqsat.relu(x @ weight(g, 900 + number, SIZE, 2 * SIZE) + weight(g, 700 + number, 2 * SIZE))
    return eqsat.relu(x + wide @ weight(g, 800 + number, 2 * SIZE, SIZE) + eqsat.relu(x) * eqsat.relu(-x))


def test_a_model_of_equal_blocks_in_which_nothing_is_better_stays_as_it_is():
    def plain(g: eqsat.Graph, x: eqsat.Tensor, number: int) -> eqsat.Tensor:
        for part in range(4):
            x = eqsat.tanh(x @ weight(g, 4 * number + part, SIZE, SIZE))
        return x

    result = optimised(chain(plain, 2 * BLOCKS))
    assert result.report.blocks
    assert result.report.kept == "original"
    assert not result.explain().changes


def test_several_runs_of_blocks_are_told_apart():
    graph = chain(two_stages, 2 * BLOCKS)
    # Where steps are counted, neither times nor what another test measured decide between choices that cost as much.
    result = optimised(graph, steps=3_000_000)
    assert [one.count for one in result.report.blocks] == [BLOCKS, BLOCKS], str(result.report)
    check_outputs(result, graph)


def runs(graph: Graph) -> list[int]:
    return [repeat.count for repeat in repeats.repeats_of(graph)]


def special(kind: str) -> Block:
    """A block of which one, or all, differ in something that rules may ask for, or that others see."""

    def one(g: eqsat.Graph, x: eqsat.Tensor, number: int) -> eqsat.Tensor:
        bias = (
            g.constant(np.zeros(SIZE, np.float32))
            if kind == "zeros" and number == 4
            else weight(g, 1000 + number, SIZE)
        )
        scale = 0.5 + number if kind == "scales" else 0.5
        return block(g, eqsat.relu(x * scale + bias), number)

    return one


@pytest.mark.parametrize("kind", ["zeros", "scales"])
def test_blocks_that_rules_can_tell_apart_do_not_stand_for_each_other(kind):
    assert runs(chain(special("none"))) == [BLOCKS]
    assert runs(chain(special(kind))) == []


def test_matrices_of_a_form_are_told_apart_from_others_of_any_size():
    def one(g: eqsat.Graph, x: eqsat.Tensor, number: int) -> eqsat.Tensor:
        matrix = np.random.default_rng(number).standard_normal((80, 80)).astype(np.float32)
        for part in range(3):
            kept = np.tri(80, dtype=np.float32) if triangular and number == 3 else 1.0
            x = eqsat.relu(
                x @ g.constant((matrix * kept / (part + 9)).astype(np.float32)) + weight(g, 7 * number + part, 80)
            )
        return x

    def graph() -> Graph:
        g = eqsat.Graph("forms")
        x = g.input("x", (4, 80))
        for number in range(BLOCKS):
            x = one(g, x, number)
        g.output("y", x)
        return g.build()

    triangular = False
    assert runs(graph())
    triangular = True
    assert runs(graph()) == []


def test_products_that_could_be_joined_across_blocks_are_left_to_the_whole():
    memory = []

    def crossing(g: eqsat.Graph, x: eqsat.Tensor, number: int) -> eqsat.Tensor:
        memory[:] = memory if number else [g.input("memory", (4, SIZE))]
        return block(g, x + memory[0] @ weight(g, 500 + number, SIZE, SIZE), number)

    def recurrent(g: eqsat.Graph, x: eqsat.Tensor, number: int) -> eqsat.Tensor:
        memory[:] = memory if number else [g.input("steps", (BLOCKS * 4, SIZE)), weight(g, 500, SIZE, SIZE)]
        step = eqsat.slice(memory[0], axes=(0,), starts=(4 * number,), ends=(4 * number + 4,), steps=(1,))
        return block(g, x + step @ memory[1], number)

    assert runs(chain(crossing)) == []
    assert runs(chain(recurrent)) == []


def test_values_and_weights_that_are_read_elsewhere_keep_blocks_whole():
    g = eqsat.Graph("tapped")
    x, taps = g.input("x", (4, SIZE)), []
    for number in range(BLOCKS):
        x = block(g, x, number)
        taps.append(x)
    g.output("y", eqsat.concat(taps, axis=0))
    assert runs(g.build()) == []
    tied = chain()
    inner = repeats.repeats_of(tied)[0].leaves[4][0]
    outputs = {**tied.outputs, "weights": inner}
    assert runs(replace(tied, outputs=outputs)) == []


def test_a_choice_that_has_no_whole_is_made_anew_from_the_whole(monkeypatch):
    def fails(*_: object) -> None:
        raise blocks.BlocksError("no borders")

    graph = chain()
    monkeypatch.setattr("eqsat.steps.candidates.whole_choice", fails)
    result = optimised(graph)
    assert not result.report.blocks
    assert result.report.kept != "original"
    assert any("equal blocks were looked at one by one: no borders" in w for w in result.report.warnings)


def test_blocks_that_are_not_equal_are_found_out_by_the_certificate(monkeypatch):
    """Even if blocks are taken to be equal that are not, nothing wrong is returned."""
    graph = chain(special("scales"))
    monkeypatch.setattr(repeats, "_told", lambda constant: constant.type)
    assert runs(graph) == [BLOCKS]
    result = optimised(graph, strict=False)
    check_outputs(result, graph)
    assert not result.report.failure


def test_a_wrong_copy_is_refused(monkeypatch):
    real = blocks.whole_choice

    def wrong(assembled, condensed, known):
        found = real(assembled, condensed, known)
        nodes = list(found.assembled.plan.graph.nodes)
        place = next(i for i, n in reversed(list(enumerate(nodes))) if n.op in ("gemm", "matmul"))
        other = next(n for n in nodes if n.op == nodes[place].op)
        inputs = (nodes[place].inputs[0], other.inputs[1], *nodes[place].inputs[2:])
        nodes[place] = replace(nodes[place], inputs=inputs)
        plan = replace(found.assembled.plan, graph=replace(found.assembled.plan.graph, nodes=tuple(nodes)))
        decoded = replace(found.assembled.decoded, graph=plan.graph)
        return replace(found, assembled=replace(found.assembled, plan=plan, decoded=decoded))

    monkeypatch.setattr("eqsat.steps.candidates.whole_choice", wrong)
    monkeypatch.setattr("eqsat.steps.trials.Trials.agreeing", lambda self, candidates, source: candidates)
    graph = chain()
    try:
        result = optimised(graph, strict=False)
    except CertificateError:
        pytest.fail("a wrong copy is no error of the caller")
    check_outputs(result, graph)
    assert not result.report.blocks
