"""Types through If, Loop and Scan, and branches that take the place of an If."""

from __future__ import annotations

import pytest
from onnx import ModelProto, TensorProto, helper, parser

from eqsat.language.onnx.read.importer import load
from eqsat.language.terms import OPAQUE, DType, Graph, Sym, TensorType


def model(body: str, opset: int = 17) -> ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> g {body}')


def text(body: str, opset: int = 17) -> Graph:
    return load(model(body, opset))


def result(graph: Graph, name: str = "y") -> TensorType:
    type = graph.type(graph.outputs[name])
    assert isinstance(type, TensorType)
    return type


def shown(graph: Graph, name: str = "y") -> list[object]:
    """The dims of an output, those without a name as "?"."""
    return ["?" if isinstance(d, Sym) and d.is_anonymous else d for d in result(graph, name).dims]


def loop(body: str, head: str = "(int64 m, bool c, float[2, 3] x) => (float[] y)", call: str = "m, c, x") -> str:
    return f"""{head} {{ y = Loop({call})<body = b (int64 i, bool go, float[] v) => (bool on, float[] u)
        {{ on = Identity(go) \n {body} }}> }}"""


def test_a_state_that_keeps_its_shape_keeps_its_type() -> None:
    assert shown(text(loop("u = Relu(v)"))) == [2, 3]


def test_a_dim_that_grows_is_any_dim() -> None:
    assert shown(text(loop("u = Concat<axis = 0>(v, x)"))) == ["?", 3]


def test_a_dim_that_grows_by_itself_is_any_dim() -> None:
    assert shown(text(loop("u = Concat<axis = 1>(v, v)"))) == [2, "?"]


def test_a_rank_that_grows_is_unknown() -> None:
    found = text(loop("z = Constant<value_ints = [0]>() \n u = Unsqueeze(v, z)"))
    assert result(found) == TensorType(DType.FLOAT32, None)


def test_states_that_change_each_other_are_widened_together() -> None:
    """The first takes the shape of the second, which grows."""
    found = text(
        """(int64 m, bool c, float[2, 3] x) => (float[] y, float[] z) {
            y, z = Loop(m, c, x, x)<body = b (int64 i, bool go, float[] v, float[] w)
                => (bool on, float[] u, float[] t) {
                on = Identity(go) \n u = Relu(w) \n t = Concat<axis = 1>(w, w) }> }"""
    )
    assert shown(found) == [2, "?"]
    assert shown(found, "z") == [2, "?"]
    # They are not the same after the same number of runs.
    assert result(found).dims[1] != result(found, "z").dims[1]


def test_a_loop_that_surely_runs_has_the_type_of_its_last_run() -> None:
    """[2, 3] before, [2, 2] after every run."""
    body = "z = Constant<value_ints = [2, 2]>() \n o = Constant<value_float = 1.0>() \n u = Expand(o, z)"
    assert shown(text(loop(body))) == [2, "?"]
    head = "(bool c, float[2, 3] x) => (float[] y) <int64 m = {3}, bool t = {1}>"
    assert shown(text(loop(body, head, "m, t, x"))) == [2, 2]
    assert shown(text(loop(body, head, "m, c, x"))) == [2, "?"]


def stacked(
    head: str, call: str, going: str = "Identity(go)", made: str = "Relu(v)", stated: str = "float[2, 3]"
) -> str:
    return f"""{head} {{ z, y = Loop({call})<body = b (int64 i, bool go, float[2, 3] v)
        => (bool on, float[2, 3] u, {stated} s) {{ on = {going} \n u = Relu(v) \n s = {made} }}> }}"""


def test_scan_outputs_have_as_many_rows_as_the_loop_runs() -> None:
    head = "(bool c, float[2, 3] x) => (float[] y) <int64 m = {5}, bool t = {1}>"
    assert shown(text(stacked(head, "m, t, x"))) == [5, 2, 3]
    assert shown(text(stacked(head, "m, , x"))) == [5, 2, 3]
    assert shown(text(stacked(head, "m, c, x"))) == ["?", 2, 3]
    # It may end early.
    assert shown(text(stacked(head, "m, t, x", "Identity(c)"))) == ["?", 2, 3]


def test_scan_outputs_of_a_loop_over_a_named_dim() -> None:
    head = "(float[n, 4] d, float[2, 3] x) => (float[] y) <bool t = {1}, int64 zero = {0}>"
    whole = stacked(head, "m, t, x").replace("{ z, y", "{ e = Shape(d) \n m = Gather(e, zero) \n z, y", 1)
    assert [str(d) for d in result(text(whole)).dims] == ["n", "2", "3"]


def test_a_loop_that_may_not_run_stacks_what_its_body_states() -> None:
    """ONNX Runtime goes by what is stated where nothing was stacked."""
    head = "(int64 m, bool c, float[2, 3] x) => (float[] y)"
    assert shown(text(stacked(head, "m, c, x"))) == ["?", 2, 3]
    assert shown(text(stacked(head, "m, c, x", stated="float[2, q]"))) == ["?", 2, "?"]
    assert result(text(stacked(head, "m, c, x", stated="float[]"))).shape is None


def test_no_run_at_all_stacks_nothing() -> None:
    head = "(bool c, float[2, 3] x) => (float[] y) <int64 m = {-4}, bool t = {1}>"
    assert shown(text(stacked(head, "m, t, x"))) == [0, 2, 3]


def test_what_a_loop_body_states_of_shapes_is_not_believed() -> None:
    """It may be what one run was exported from."""
    body = (
        loop("u = Concat<axis = 0>(v, x)").replace("float[] v", "float[2, 3] v").replace("float[] u", "float[2, 3] u")
    )
    assert shown(text(body)) == ["?", 3]


def test_values_outside_are_seen_inside() -> None:
    found = text(
        """(int64 m, bool c, float[2, 3] x, float[4, 6] a) => (float[] y) <int64[2] s = {6, 4}> {
            y = Loop(m, c, x)<body = b (int64 i, bool go, float[2, 3] v) => (bool on, float[] u) {
                on = Identity(go) \n r = Reshape(a, s) \n e = MatMul(r, a) \n f = ReduceSum<keepdims = 0>(e)
                u = Add(v, f) }> }"""
    )
    assert shown(found) == [2, 3]


def test_a_branch_of_known_condition_inside_a_loop() -> None:
    """The loop grows in the branch that is never taken."""
    found = text(
        """(int64 m, bool c, float[2, 3] x) => (float[] y) <bool f = {0}> {
            y = Loop(m, c, x)<body = b (int64 i, bool go, float[2, 3] v) => (bool on, float[] u) {
                on = Identity(go)
                u = If(f)<then_branch = t() => (float[] p) { p = Concat<axis = 0>(v, v) },
                          else_branch = e() => (float[] q) { q = Neg(v) }> }> }"""
    )
    assert shown(found) == [2, 3]


def test_a_loop_in_a_branch_in_a_loop() -> None:
    found = text(
        """(int64 m, bool c, float[2, 3] x) => (float[] y) {
            y = Loop(m, c, x)<body = b (int64 i, bool go, float[2, 3] v) => (bool on, float[] u) {
                on = Identity(go)
                u = If(go)<then_branch = t() => (float[] p) {
                    p = Loop(i, go, v)<body = k (int64 j, bool go2, float[] w) => (bool on2, float[] o) {
                        on2 = Identity(go2) \n o = Concat<axis = 1>(w, x) }> },
                          else_branch = e() => (float[] q) { q = Neg(v) }> }> }"""
    )
    assert shown(found) == [2, "?"]


def branches(first: str, second: str, stated: str = "float[]") -> str:
    return f"""(bool c, float[n, 3] x, float[n, 4] z) => (float[] y) {{
        y = If(c)<then_branch = t() => ({stated} p) {{ {first} }},
                  else_branch = e() => ({stated} q) {{ {second} }}> }}"""


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("p = Relu(x)", "q = Neg(x)", ["n", "3"]),
        ("p = Relu(x)", "q = Neg(z)", ["n", "?"]),
        ("p = Relu(x)", "q = Concat<axis = 0>(x, x)", ["?", "3"]),
        ("p = Relu(x)", "q = ReduceSum<keepdims = 0>(x)", None),
        ("h = Shape(x) \n p = Cast<to = 1>(h)", "h = Shape(z) \n q = Cast<to = 1>(h)", ["2"]),
    ],
)
def test_an_if_has_what_its_branches_have_in_common(first: str, second: str, expected: list[str] | None) -> None:
    found = result(text(branches(first, second)))
    dims = None if found.shape is None else [d if not d.startswith("?") else "?" for d in map(str, found.shape)]
    assert dims == expected


def test_a_name_inside_one_branch_says_nothing_outside() -> None:
    """Both branches call their rows k; a second If calls other rows so."""
    found = text(
        """(bool c, float[n, 3] x) => (int64[] y, int64[] z) {
            y = If(c)<then_branch = t() => (int64[2, k] p) { p = NonZero(x) },
                      else_branch = e() => (int64[2, k] q) { h = Neg(x) \n q = NonZero(h) }>
            w = Exp(x)
            z = If(c)<then_branch = t2() => (int64[2, k] p2) { p2 = NonZero(w) },
                      else_branch = e2() => (int64[2, k] q2) { q2 = NonZero(x) }> }"""
    )
    assert shown(found) == [2, "?"] == shown(found, "z")
    assert result(found).dims[1] != result(found, "z").dims[1]


def test_element_types_that_differ_are_left_to_the_runtime() -> None:
    whole = branches("p = Relu(x)", "q = Shape(x)").replace("(float[] q)", "(int64[] q)")
    found = text(whole.replace("=> (float[] y)", "=> (float[2] w)").replace("}> }", "}> \n w = Cast<to = 1>(y) }"))
    assert [n.op for n in found.nodes] == [OPAQUE, OPAQUE]


def test_a_body_that_would_fail_does_not_matter_until_it_runs() -> None:
    """The shapes do not fit; with no run the loop hands on its state."""
    found = text(loop("u = MatMul(v, v)"))
    assert [n.op for n in found.nodes] == [OPAQUE]
    assert result(found) == TensorType(DType.FLOAT32, None)


def test_scan_reads_slices_and_stacks_along_its_axes() -> None:
    found = text(
        """(float[2] s, float[n, 2] a, float[3, n] b) => (float[] y, float[] z, float[] w) {
            y, z, w = Scan<num_scan_inputs = 2, scan_input_axes = [0, -1], scan_output_axes = [0, 1],
                body = g2 (float[2] v, float[2] p, float[3] q) => (float[2] u, float[2] r, float[3] t) {
                    u = Add(v, p) \n r = Mul(v, p) \n t = Relu(q) }>(s, a, b) }"""
    )
    assert shown(found) == [2]
    assert [str(d) for d in result(found, "z").dims] == ["n", "2"]
    assert [str(d) for d in result(found, "w").dims] == ["3", "n"]


def test_deep_nests_of_loops_are_read() -> None:
    """Each is read twice in each reading of that around it; what is beyond the budget has the types that are stated."""
    inner = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Concat", ["v", "v"], ["u"], axis=0)],
        "b0",
        [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("v", TensorProto.FLOAT, None)],
        [info("on", TensorProto.BOOL, []), info("u", TensorProto.FLOAT, None)],
    )
    for depth in range(1, 25):
        node = helper.make_node("Loop", ["m", "c", f"v{depth}"], [f"u{depth}"], body=inner)
        inner = helper.make_graph(
            [helper.make_node("Identity", [f"go{depth}"], [f"on{depth}"]), node],
            f"b{depth}",
            [
                info(f"i{depth}", TensorProto.INT64, []),
                info(f"go{depth}", TensorProto.BOOL, []),
                info(f"v{depth}", TensorProto.FLOAT, None),
            ],
            [info(f"on{depth}", TensorProto.BOOL, []), info(f"u{depth}", TensorProto.FLOAT, None)],
        )
    node = helper.make_node("Loop", ["m", "c", "x"], ["y"], body=inner)
    inputs = [info("m", TensorProto.INT64, []), info("c", TensorProto.BOOL, []), info("x", TensorProto.FLOAT, [2, 3])]
    graph = helper.make_graph([node], "nest", inputs, [info("y", TensorProto.FLOAT, None)])
    found = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert result(found).dtype is DType.FLOAT32


def info(name: str, dtype: int, shape: list[int] | None) -> object:
    return helper.make_tensor_value_info(name, dtype, shape)


def test_a_branch_with_tensors_of_its_own_takes_the_place_of_its_if() -> None:
    weights = helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    branch = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["p"])], "t", [], [info("p", TensorProto.FLOAT, [3])], [weights]
    )
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["q"])], "e", [], [info("q", TensorProto.FLOAT, [3])])
    shape = helper.make_node("Shape", ["x"], ["s"])
    same = helper.make_node("Equal", ["s", "three"], ["c"])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=other)
    three = helper.make_tensor("three", TensorProto.INT64, [1], [3])
    graph = helper.make_graph(
        [shape, same, node],
        "known",
        [info("x", TensorProto.FLOAT, [3])],
        [info("y", TensorProto.FLOAT, [3])],
        [three],
    )
    found = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert [n.op for n in found.nodes] == ["mul"]
    assert [list(c.array) for c in found.constants.values()] == [[1.0, 2.0, 3.0]]
