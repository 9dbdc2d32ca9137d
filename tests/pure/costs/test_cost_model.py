"""What operators and graphs cost: estimates that rank as devices do, measured entries, objectives."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat.costs.devices.device import DEVICES
from eqsat.costs.kernels.applications import keys_of
from eqsat.costs.kernels.fusion import FusedKey
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.model.cost import Cost, added
from eqsat.costs.model.model import CostModel
from eqsat.costs.table.entry import Entry
from eqsat.costs.table.environment import Environment
from eqsat.costs.table.table import CostTable
from eqsat.errors import CostError, UsageError
from eqsat.language.ops import spec
from eqsat.language.sizes.solve import DEFAULT_SIZE
from eqsat.language.terms import Attrs, Constant, Graph, Node, TensorType

COSTS = st.builds(
    Cost,
    st.integers(0, 99).map(float),
    *[st.integers(0, 10**12)] * 4,
    st.integers(0, 99).map(float),
    st.booleans(),
)


def tensor(*shape: int | str, dtype: str = "float32") -> TensorType:
    return TensorType.of(dtype, shape)


def cost(model: CostModel, op: str, *operands: TensorType | None, const=(), **attrs) -> Cost:
    declared = spec(op)
    full = declared.complete(attrs)
    flags = tuple(i in const for i in range(len(operands)))
    return model.node(op, full, operands, declared.result_types(operands, full), flags)


@given(COSTS, COSTS, COSTS)
def test_costs_are_a_commutative_monoid(a, b, c):
    assert a + Cost() == a == Cost() + a
    assert a + b == b + a
    sums = [(a + b) + c, a + (b + c), added([a, b, c])]
    # Roots of sums of squares are rounded: errors are equal but for that, all else exactly.
    assert [one.error for one in sums] == pytest.approx([math.hypot(a.error, b.error, c.error)] * 3, rel=1e-12)
    assert len({replace(one, error=0.0) for one in sums}) == 1


@pytest.mark.parametrize("device", DEVICES)
def test_every_device_states_its_source_and_costs_are_finite(device):
    assert len(DEVICES[device].source) > 20
    made = cost(CostModel(device), "matmul", tensor(4, 8), tensor(8, 16), const={1})
    assert made.estimated
    assert 0 < made.seconds < 1
    assert (made.flops, made.bytes, made.launches, made.weight_bytes) == (1024, 4 * (32 + 128 + 64), 1, 0)


def test_the_gpu_is_bound_by_its_stated_limits():
    model = CostModel("nvidia-h200")
    large = cost(model, "matmul", tensor(8192, 8192, dtype="bfloat16"), tensor(8192, 8192, dtype="bfloat16"))
    assert large.seconds == pytest.approx(2 * 8192**3 / 788e12 + 2.5e-6, rel=0.01)
    copied = cost(model, "add", tensor(2**28), tensor(2**28))
    assert copied.seconds == pytest.approx(3 * 2**30 / 4.3e12 + 2.5e-6, rel=0.01)


def test_unknown_devices_are_refused():
    with pytest.raises(CostError, match=r"no device 'tpu'\n  expected one of c-cpu, numpy-cpu, nvidia-h200"):
        CostModel("tpu")


def test_constants_and_what_they_alone_decide_cost_nothing():
    model = CostModel()
    assert cost(model, "concat", tensor(4, 8), tensor(4, 8), const={0, 1}, axis=0) == Cost()
    assert cost(model, "fill", shape=(1000, 1000), value=1.0) == Cost()
    assert cost(model, "concat", tensor(4, 8), tensor(4, 8), const={0}, axis=0).seconds > 0


def test_views_move_nothing():
    model = CostModel()
    viewed = cost(model, "reshape", tensor(1024, 1024), shape=(1024 * 1024,))
    assert (viewed.bytes, viewed.flops, viewed.launches) == (0, 0, 0)
    assert viewed.seconds < cost(model, "transpose", tensor(1024, 1024), perm=(1, 0)).seconds / 10
    assert cost(model, "identity", tensor(1024, 1024)).seconds == 0


def test_a_gather_costs_what_it_gathers_not_its_table():
    model = CostModel()
    small = cost(model, "gather", tensor(100, 64), tensor(5, dtype="int64"), const={0}, axis=0)
    large = cost(model, "gather", tensor(100_000, 64), tensor(5, dtype="int64"), const={0}, axis=0)
    assert large.seconds == pytest.approx(small.seconds)


def test_named_dims_are_costed_at_their_sizes():
    def at(sizes):
        return cost(CostModel(sizes=sizes), "matmul", tensor("batch", 64), tensor(64, 64), const={1})

    assert at({"batch": 3}).flops == 2 * 3 * 64 * 64
    assert at(None).flops == at({"batch": DEFAULT_SIZE}).flops


class TestRankingWithoutATable:
    """What ONNX Runtime rewards and punishes on a CPU, by the roofline alone."""

    def test_products_by_one_weight_batched_over_time_steps_win(self):
        model = CostModel()
        step = cost(model, "matmul", tensor(1, 1024), tensor(1024, 1024), const={1})
        batched = cost(model, "matmul", tensor(20, 1024), tensor(1024, 1024), const={1})
        split = cost(model, "split", tensor(20, 1024), axis=0, sizes=(1,) * 20)
        assert batched.seconds + split.seconds < 0.7 * 20 * step.seconds

    def test_merging_products_that_share_an_input_gains_next_to_nothing(self):
        model = CostModel()
        one = cost(model, "matmul", tensor(128, 768), tensor(768, 768), const={1})
        three = cost(model, "matmul", tensor(128, 768), tensor(768, 3 * 768), const={1})
        cut = cost(model, "split", tensor(128, 3 * 768), axis=1, sizes=(768,) * 3)
        assert three.seconds + cut.seconds == pytest.approx(3 * one.seconds, rel=0.1)

    def test_enlarging_a_kernel_to_merge_two_convolutions_loses(self):
        model = CostModel()
        x = tensor(1, 16, 55, 55)
        apart = cost(model, "conv", x, tensor(64, 16, 1, 1), const={1}, pads=(0, 0, 0, 0)).seconds
        apart += cost(model, "conv", x, tensor(64, 16, 3, 3), const={1}, pads=(1, 1, 1, 1)).seconds
        apart += cost(model, "concat", tensor(1, 64, 55, 55), tensor(1, 64, 55, 55), axis=1).seconds
        assert cost(model, "conv", x, tensor(128, 16, 3, 3), const={1}, pads=(1, 1, 1, 1)).seconds > apart

    def test_merging_groups_loses(self):
        model = CostModel()
        x = tensor(1, 128, 56, 56)
        groups = {
            g: cost(model, "conv", x, tensor(128, 128 // g, 3, 3), const={1}, pads=(1,) * 4, group=g) for g in (32, 1)
        }
        assert groups[1].seconds > groups[32].seconds


def key_of(op, *operands, const=(), **attrs):
    flags = [i in const for i in range(len(operands))]
    return OpKey.of(op, spec(op).complete(attrs), operands, flags, {})


def test_a_measured_entry_replaces_the_estimate_in_its_environment_alone():
    table = CostTable(":memory:")
    table.put(Environment.current(), key_of("relu", tensor(2, 8)), Entry(42e-6, 41e-6, 43e-6, 20))
    measured = cost(CostModel(table=table), "relu", tensor(2, 8))
    assert (measured.seconds, measured.estimated) == (42e-6, False)
    assert measured == cost(CostModel(table=table, sizes={"n": 2}), "relu", tensor("n", 8))
    assert cost(CostModel(table=table, threads=2), "relu", tensor(2, 8)).estimated
    assert cost(CostModel("nvidia-h200", table), "relu", tensor(2, 8)).estimated


def test_measured_shapes_correct_the_estimates_of_other_shapes_of_their_operator():
    plain = CostModel()
    table = CostTable(":memory:")
    for n in (100, 200, 300):
        estimate = cost(plain, "relu", tensor(n)).seconds
        table.put(Environment.current(), key_of("relu", tensor(n)), Entry(2 * estimate, estimate, 3 * estimate, 20))
    fitted = CostModel(table=table)
    assert cost(fitted, "relu", tensor(400)).seconds == pytest.approx(2 * cost(plain, "relu", tensor(400)).seconds)
    assert cost(fitted, "relu", tensor(400)).estimated
    assert cost(fitted, "exp", tensor(400)).seconds == cost(plain, "exp", tensor(400)).seconds


def layer() -> Graph:
    weight, bias = Constant.of(np.ones((8, 8), np.float32)), Constant.of(np.ones(8, np.float32))
    types = {v: tensor("n", 8) for v in ("x", "h", "a", "z")} | {"w": weight.type, "w2": tensor(8, 8), "b": bias.type}
    nodes = (
        Node("transpose", ("w",), ("w2",), Attrs(perm=(1, 0))),
        Node("matmul", ("x", "w2"), ("h",)),
        Node("add", ("h", "b"), ("a",)),
        Node("relu", ("a",), ("z",)),
    )
    return Graph("layer", ("x",), {"z": "z"}, nodes, {"w": weight, "b": bias}, types)


def test_the_cost_of_a_graph_is_the_sum_over_its_nodes_and_says_how_much_is_estimated():
    table = CostTable(":memory:")
    for key in keys_of(layer(), {"n": 2}):
        if key.op != "relu":
            table.put(Environment.current(), key, Entry(1e-6, 1e-6, 1e-6, 20))
    whole = CostModel(table=table, sizes={"n": 2}).graph(layer())
    assert [c.seconds for _, c in whole.nodes[:3]] == [0, 1e-6, 1e-6]
    assert whole.total == sum((c for _, c in whole.nodes), Cost(weight_bytes=4 * (64 + 8)))
    assert whole.price == whole.total.seconds
    assert whole.estimated_share == pytest.approx(whole.nodes[3][1].seconds / whole.total.seconds)


def test_the_keys_of_a_graph_are_what_runs_at_the_sizes_given():
    texts = [k.text for k in keys_of(layer(), {"n": 2})]
    assert texts == [
        "matmul {} float32[2, 8] =float32[8, 8]",
        "add {} float32[2, 8] =float32[8]",
        "relu {} float32[2, 8]",
    ]


def test_an_objective_weighs_terms():
    model = CostModel(objective={"flops": 2.0, "launches": 5.0}, sizes={"n": 1})
    assert model.graph(layer()).price == 2 * (2 * 64 + 8 + 8) + 5 * 3


def test_the_weights_that_are_there_when_a_graph_runs_count_once():
    g = layer()
    doubled = replace(g, nodes=(*g.nodes, Node("matmul", ("z", "w2"), ("y",))), outputs={"y": "y"})
    doubled = replace(doubled, types={**g.types, "y": tensor("n", 8)})
    model = CostModel(objective={"weight_memory": 1.0})
    assert model.graph(doubled).price == model.graph(g).price == 4 * (64 + 8)


def test_a_cost_function_stands_in_place_of_the_objective():
    model = CostModel(cost=lambda applied: 100.0 if applied.op == "matmul" else applied.cost.launches)
    assert model.graph(layer()).price == 102


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ({"tme": 1.0}, "objective has no term 'tme'"),
        ({"time": -1.0}, "objective weighs time by -1.0"),
        ({"time": math.nan}, "objective weighs time by nan"),
        ({}, "objective weighs nothing"),
        ({"time": 0.0}, "objective weighs nothing"),
        (len, "objective = .*\n  expected weights of terms"),
        ({"time": "fast"}, "objective weighs time by 'fast'"),
    ],
)
def test_objectives_that_order_nothing_are_refused(objective, message):
    with pytest.raises(UsageError, match=message):
        CostModel(objective=objective)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, None, True])
def test_a_function_that_gives_no_price_is_an_error_that_names_the_operator(value):
    with pytest.raises(CostError, match=f"cost of matmul: the cost function gives {value}\n  expected a finite number"):
        CostModel(cost=lambda applied: value if applied.op == "matmul" else 0).graph(layer())


def test_a_cost_function_that_raises_is_an_error_that_names_the_operator():
    with pytest.raises(CostError, match="cost of matmul: the cost function raised ZeroDivisionError") as caught:
        CostModel(cost=lambda applied: 1 / (applied.op != "matmul")).graph(layer())
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


KEYS = st.builds(
    OpKey,
    st.sampled_from(["conv", "matmul", "and_"]),
    st.dictionaries(
        st.sampled_from(["axis", "mode", "pads"]),
        st.one_of(
            st.integers(),
            st.booleans(),
            st.floats(allow_nan=False),
            st.text('ab" é=', max_size=4),
            st.tuples(st.integers(), st.floats(0, 1)),
        ),
    ).map(Attrs),
    st.lists(
        st.one_of(
            st.none(),
            st.builds(
                TensorType.of,
                st.sampled_from(["float32", "int64"]),
                st.lists(st.integers(0, 99), max_size=4).map(tuple),
            ),
        ),
        max_size=3,
    ).map(tuple),
    st.just(()),
).flatmap(
    lambda k: st.builds(
        lambda const, layouts, result, how: replace(k, const_operands=const).run(layouts, result, how),
        st.tuples(*[st.booleans()] * len(k.operands)),
        st.tuples(*[st.sampled_from(["row", "column", "packed"])] * (len(k.operands) + 1)),
        st.sampled_from(["", "float16"]),
        st.sampled_from(["", "tf32"]),
    )
)


@given(KEYS, KEYS)
def test_keys_are_their_text(a, b):
    assert OpKey.parse(a.text) == a
    assert (a.text == b.text) == (a == b)


@pytest.mark.parametrize(
    "line", ["relu", "relu []", "relu {} float31[2]", "relu {} float32[2", "relu {} x", "relu {} "]
)
def test_a_line_that_is_no_key_is_refused(line):
    with pytest.raises(CostError, match="no operator key: 'relu"):
        OpKey.parse(line)


@given(st.lists(KEYS, min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_keys_of_fused_kernels_are_their_text(members, rng):
    links = tuple(tuple(rng.choice([None, *range(i)]) for _ in key.operands) for i, key in enumerate(members))
    key = FusedKey(tuple(members), links)
    assert FusedKey.parse(key.text) == key


@pytest.mark.parametrize("line", ["relu {} float32[2]", "relu {} float32[2] ; relu {} %1:float32[2]", " ; "])
def test_a_line_that_is_no_key_of_a_fused_kernel_is_refused(line):
    with pytest.raises(CostError, match=r"no (operator key|key of a fused kernel)"):
        FusedKey.parse(line)


def test_a_shape_that_is_not_known_cannot_be_measured_but_is_estimated():
    unknown = TensorType.of("float32", None)
    assert not OpKey.of("relu", {}, [unknown], [False], {}).is_measurable
    assert cost(CostModel(), "relu", unknown).seconds > 0
