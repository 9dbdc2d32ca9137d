"""GroupQueryAttention means what ONNX Runtime's kernel computes, caches and padding included, and stays one node."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import eqsat
from eqsat.language.onnx.read.importer import load
from eqsat.language.onnx.write.exporter import to_model
from eqsat.language.sizes.solve import sizing_of
from eqsat.runtime.backend import select
from tests.support.one_operator import agree, fits, is_lowered, model, opaque, session_run

RNG = np.random.default_rng(7)
CLOSE = {"rtol": 1e-4, "atol": 2e-5}
N, KV, H = 4, 2, 16
#: ONNX Runtime's operands in their order.
OPERANDS = ["q", "k", "v", "past_k", "past_v", "lens", "total", "cos", "sin", "places", "bias", "sink"]
OUTPUTS = ["y", "keys", "values"]


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def grouped(feeds: dict[str, Any], constants: dict[str, Any], **attrs: Any) -> Any:
    names = [n if n in feeds or n in constants else "" for n in OPERANDS]
    while not names[-1]:
        names.pop()
    attrs = {"num_heads": N, "kv_num_heads": KV} | attrs
    return helper.make_node("GroupQueryAttention", names, OUTPUTS, domain="com.microsoft", **attrs)


def operands(batch: int, length: int, past: int | None, packed: bool = False) -> dict[str, Any]:
    if packed:
        feeds = {"q": floats(batch, length, (N + 2 * KV) * H)}
    else:
        feeds = {"q": floats(batch, length, N * H)} | {n: floats(batch, length, KV * H) for n in "kv"}
    if past is not None:
        feeds |= {n: floats(batch, KV, past, H) for n in ("past_k", "past_v")}
    return feeds


def counts(rng: random.Random) -> tuple[int, int, int | None, int, list[int]]:
    """Sequences, new positions, those of the cache, the most in all, and the last position of each sequence."""
    kind = rng.choice(("prompt", "prompt", "next", "chunk"))
    batch = 1 if kind == "chunk" else rng.randint(1, 3)
    length = 1 if kind == "next" else rng.randint(2, 6)
    if kind == "prompt":
        past = rng.choice((None, 0, length, length + 3))
        return batch, length, past, length, [rng.randrange(length) for _ in range(batch)]
    before = rng.randint(1, 6)
    total = before + length
    past = rng.choice((before, total, total + 2))
    return batch, length, past, total, [rng.randrange(length - 1, total) for _ in range(batch)]


@pytest.mark.parametrize("seed", range(60))
def test_random_instances(seed: int) -> None:
    """Prompts, single tokens and parts of a prompt, sequences of several lengths, caches that grow or have room."""
    rng = random.Random(seed)
    batch, length, past, total, lens = counts(rng)
    feeds = operands(batch, length, past, rng.random() < 0.3) | {"lens": np.int32(lens)}
    constants: dict[str, Any] = {"total": np.int32([total])}
    attrs: dict[str, Any] = {}
    if rng.random() < 0.6:
        constants |= {"cos": floats(total + 2, H // 2), "sin": floats(total + 2, H // 2)}
        attrs |= {"do_rotary": 1, "rotary_interleaved": rng.randint(0, 1)}
    attrs |= rng.choice(({}, {"local_window_size": rng.randint(1, 4)}, {"causal": 0}))
    if "local_window_size" in attrs and total == length:  # what padding sees in a window is another test
        feeds["lens"][:] = total - 1
    attrs |= rng.choice(({}, {"scale": 0.3}, {"softcap": 2.0}, {"smooth_softmax": 1}))
    if rng.random() < 0.3:
        feeds["bias"] = floats(rng.choice((1, batch)), rng.choice((1, N)), length, total)
    if rng.random() < 0.3:
        feeds["sink"] = floats(N)
    proto = model(grouped(feeds, constants, **attrs), feeds, constants)
    graph = is_lowered(proto, feeds, **CLOSE)
    assert [n.op for n in graph.nodes] == ["grouped_attention"]
    assert [n.op_type for n in to_model(graph).graph.node] == ["GroupQueryAttention"]


def test_padding_of_a_prompt_looks_at_its_sequence_alone() -> None:
    """The rows after a sequence's own are no leftovers of memory: they see its keys."""
    feeds = operands(1, 6, None) | {"lens": np.int32([2])}
    constants = {"total": np.int32([6])}
    proto = model(grouped(feeds, constants), feeds, constants)
    wanted = session_run(proto, feeds)[0]
    changed = feeds | {n: np.concatenate([feeds[n][:, :3], floats(1, 3, KV * H)], axis=1) for n in "kv"}
    agree(session_run(proto, changed)[0], wanted, **CLOSE)
    is_lowered(proto, changed, **CLOSE)


@pytest.mark.parametrize("attrs", [{}, {"softcap": 2.0}, {"smooth_softmax": 1}], ids=["plain", "softcap", "smooth"])
@pytest.mark.parametrize("window", [1, 3])
def test_what_padding_sees_in_a_window_is_left_open(window: int, attrs: dict[str, Any]) -> None:
    """ONNX Runtime's own ways to compute it differ there; a sequence's own rows, and the cache, are compared."""
    lens = [5, 2, 0]
    feeds = operands(3, 6, None) | {"lens": np.int32(lens)}
    constants = {"total": np.int32([6])}
    proto = model(grouped(feeds, constants, local_window_size=window, **attrs), feeds, constants)
    graph = load(proto)
    y, *caches = select("numpy").compile(graph).run(feeds).values()
    wanted, *others = session_run(proto, feeds)
    for row, last in enumerate(lens):
        agree(y[row, : last + 1], wanted[row, : last + 1], **CLOSE)
    for made, other in zip(caches, others, strict=True):
        agree(made, other, **CLOSE)
    agree(session_run(to_model(graph), feeds)[0], wanted)


def test_halves() -> None:
    feeds = {n: a.astype(np.float16) for n, a in operands(2, 1, 3).items()} | {"lens": np.int32([3, 1])}
    constants = {"total": np.int32([4])}
    is_lowered(model(grouped(feeds, constants), feeds, constants), feeds, rtol=1e-2, atol=4e-3)


def test_lengths_in_a_column() -> None:
    feeds = operands(2, 1, 3) | {"lens": np.int32([[3], [1]])}
    constants = {"total": np.int32(4)}
    is_lowered(model(grouped(feeds, constants), feeds, constants), feeds, **CLOSE)


def test_a_cache_that_nothing_reads_is_written_all_the_same() -> None:
    """Without a name for it, ONNX Runtime's kernel looks at other keys; what the model means is with one."""
    feeds = operands(2, 1, 3) | {"lens": np.int32([3, 1])}
    constants = {"total": np.int32([4])}
    node = grouped(feeds, constants)
    proto = model(node, feeds, constants, outputs=["y"])
    is_lowered(proto, feeds, **CLOSE)
    written = eqsat.optimize(proto, measure=False, time_limit=5).to_onnx()
    (made,) = (n for n in written.graph.node if n.op_type == "GroupQueryAttention")
    assert all(made.output) and len(made.output) == 3
    agree(session_run(written, feeds)[0], session_run(proto, feeds)[0])
    del node.output[1:]
    assert opaque(load(model(node, feeds, constants))) == ["a cache that is not handed on"]


REFUSED = [
    ({"local_window_size": 0}, {}, "a window of no positions"),
    ({"sliding_window_cache": 1, "local_window_size": 2}, {}, "a cache that drops positions"),
    ({}, {"places": np.int64([[3], [3]])}, "positions that are given (position_ids)"),
    ({"qk_output": 1}, {}, "the scores as a result"),
]


@pytest.mark.parametrize("attrs, added, reason", REFUSED, ids=[r[2][:16] for r in REFUSED])
def test_what_is_not_read_says_why(attrs: dict[str, Any], added: dict[str, Any], reason: str) -> None:
    feeds = operands(2, 1, 3) | {"lens": np.int32([3, 3])} | added
    constants = {"total": np.int32([4]), "cos": floats(8, 8), "sin": floats(8, 8)}
    (said,) = opaque(load(model(grouped(feeds, constants, do_rotary=1, **attrs), feeds, constants)))
    assert said.startswith(reason)


def test_a_cache_whose_size_is_known_at_run_time_stays_opaque_and_typed() -> None:
    feeds = operands(2, 1, 3) | {"lens": np.int32([3, 3]), "total": np.int32([4])}
    proto = model(grouped(feeds, {}), feeds)
    graph = load(proto)
    assert opaque(graph) == [
        "how many positions there are (total_sequence_length), and so the size of its cache, is known at run time"
    ]
    for value, array in zip(OUTPUTS, session_run(proto, feeds), strict=True):
        fits(graph, value, array)


def llama(layers: int) -> tuple[ModelProto, dict[str, Any]]:
    """Layers as exporters write them: lengths and their most from the mask, named dims throughout."""
    width = N * H
    nodes = [
        helper.make_node("ReduceSum", ["mask", "one"], ["counted"], keepdims=0),
        helper.make_node("Sub", ["counted", "one"], ["last"]),
        helper.make_node("Cast", ["last"], ["lens"], to=TensorProto.INT32),
        helper.make_node("Shape", ["mask"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["most"]),
        helper.make_node("Cast", ["most"], ["total"], to=TensorProto.INT32),
    ]
    constants: dict[str, Any] = {"one": np.int64([1]), "cos": floats(40, H // 2), "sin": floats(40, H // 2)}
    feeds = {"x": floats(2, 1, width), "mask": np.int64([[1, 1, 1, 1], [1, 1, 0, 0]])}
    shapes: dict[str, Any] = {"x": ("batch", "length", width), "mask": ("batch", "total")}
    x, outputs = "x", []
    for i in range(layers):
        for name, columns in (("q", N * H), ("k", KV * H), ("v", KV * H)):
            constants[f"w{name}{i}"] = floats(width, columns) / 8
            nodes.append(helper.make_node("MatMul", [x, f"w{name}{i}"], [f"{name}{i}"]))
        for name in ("past_k", "past_v"):
            feeds[f"{name}{i}"] = floats(2, KV, 3, H)
            shapes[f"{name}{i}"] = ("batch", KV, "past", H)
        names = [f"{n}{i}" for n in ("q", "k", "v", "past_k", "past_v")]
        made = [f"y{i}", f"keys{i}", f"values{i}"]
        attrs = {"num_heads": N, "kv_num_heads": KV, "do_rotary": 1}
        shared = ["lens", "total", "cos", "sin"]
        nodes.append(helper.make_node("GroupQueryAttention", names + shared, made, domain="com.microsoft", **attrs))
        constants[f"wo{i}"] = floats(width, width) / 8
        nodes.append(helper.make_node("MatMul", [f"y{i}", f"wo{i}"], [f"o{i}"]))
        nodes.append(helper.make_node("Add", [x, f"o{i}"], [f"x{i}"]))
        x = f"x{i}"
        outputs += made[1:]
    return model(nodes, feeds, constants, shapes=shapes, outputs=[x, *outputs]), feeds


def test_a_model_keeps_each_of_its_operators() -> None:
    proto, feeds = llama(2)
    graph = is_lowered(proto, feeds, **CLOSE)
    assert str(graph.type("keys0")) == f"float32[batch, {KV}, max(total, past), {H}]"
    result = eqsat.optimize(proto, measure=False, time_limit=4)
    written = result.to_onnx()
    kinds = [n.op_type for n in written.graph.node]
    assert kinds.count("GroupQueryAttention") == 2
    # The most positions are computed once for all layers.
    assert kinds.count("Cast") == 2
    for made, wanted in zip(session_run(written, feeds), session_run(proto, feeds), strict=True):
        agree(made, wanted, **CLOSE)


def test_sizes_that_the_kernel_takes_are_found_and_kept() -> None:
    sizing = sizing_of(load(llama(1)[0]))
    assert sizing.accepts({"batch": 2, "length": 1, "past": 7, "total": 8})
    assert sizing.accepts({"batch": 1, "length": 3, "past": 7, "total": 10})
    assert not sizing.accepts({"batch": 1, "length": 1, "past": 7, "total": 9})
    assert not sizing.accepts({"batch": 2, "length": 3, "past": 7, "total": 10})
    assert sizing.near({"past": 7, "length": 1, "batch": 2}) == {"past": 7, "length": 1, "batch": 2, "total": 8}
    for sizes in sizing.several():
        assert sizing.accepts(sizes)


def test_inspect_counts_it_as_read(run: Any, tmp_path: Any) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(llama(1)[0].SerializeToString())
    code, out, _ = run("inspect", "--opaque", path)
    assert code == 0
    assert "none opaque" in out
