"""Small files that ask for much: tensors, loops, nests and functions that grow beyond any machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, parser

from benchmarks.faults.files import BOUNDS, read_and_optimise
from benchmarks.faults.watch import Found, forget_peak
from eqsat.language.onnx.files import wire

__all__ = ["BOUNDS", "CASES", "attempt"]
_TERA = 1 << 40


def _parsed(body: str, opset: int = 17) -> ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> g {body}')


def _declared(*dims: int, data_type: int = TensorProto.FLOAT, raw: bytes = b"") -> ModelProto:
    """A tensor that is declared and has no such data."""
    model = _parsed("(float[4] x) => (float[a] y) { y = Add(x, w) }")
    model.graph.initializer.add(name="w", dims=dims, data_type=data_type, raw_data=raw)
    return model


def _sparse(*dims: int) -> ModelProto:
    model = _parsed("(float[4] x) => (float[a] y) { y = Add(x, w) }")
    values, at = helper.make_tensor("w", 1, [1], [1.0]), helper.make_tensor("at", TensorProto.INT64, [1], [0])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, at, dims))
    return model


def _input(*dims: int) -> ModelProto:
    shape = ", ".join(map(str, dims))
    return _parsed(f"(float[{shape}] x) => (float[{shape}] y) {{ a = Relu(x)  y = Relu(a) }}")


def chain(length: int) -> bytes:
    """One operator after the other, as bytes: messages of so many nodes take more memory than may be asked for here."""
    form = _field(1, _field(1, b"%07d") + _field(2, b"%07d") + _field(4, b"Neg"))
    form = form.replace(form[:2], wire.header(1, len(form % (0, 0)) - 2))
    nodes = b"".join(form % (i, i + 1) for i in range(length))
    return _model_bytes(nodes, f"{0:07}", f"{length:07}")


def _field(number: int, value: bytes) -> bytes:
    return wire.header(number, len(value)) + value


def _model_bytes(nodes: bytes, first: str, last: str) -> bytes:
    ends = [helper.make_tensor_value_info(name, 1, [2]) for name in (first, last)]
    rest = GraphProto(name="g", input=ends[:1], output=ends[1:]).SerializeToString()
    head = ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", 17)]).SerializeToString()
    return head + _field(wire.MODEL_GRAPH, nodes + rest)


def _doubling(length: int) -> ModelProto:
    """Each value is joined to itself: the last one is 2 to the power of the length as long."""
    steps = "\n".join(f"v{i + 1} = Concat<axis = 0>(v{i}, v{i})" for i in range(length))
    return _parsed(f"() => (float[a] v{length}) <float[2] v0 = {{1, 2}}> {{ {steps} }}")


def _nested(depth: int) -> bytes:
    """Branches within branches, as bytes: messages of such depth cannot be made."""
    value = helper.make_tensor_value_info("y", 1, [2])
    last = NodeProto(op_type="Neg", input=["x"], output=["y"])
    plain = AttributeProto(name="else_branch", type=AttributeProto.GRAPH)
    plain.g.CopyFrom(GraphProto(name="branch", node=[last], output=[value]))
    body = _field(1, last.SerializeToString())
    rest = GraphProto(name="branch", output=[value]).SerializeToString()
    for _ in range(depth):
        branch = _field(1, b"then_branch") + b"\xa0\x01\x05" + _field(6, body + rest)
        node = _field(1, b"c") + _field(2, b"y") + _field(4, b"If") + _field(5, branch)
        body = _field(1, node + _field(5, plain.SerializeToString()))
    condition = helper.make_tensor_value_info("c", 9, []).SerializeToString()
    return _model_bytes(body + _field(11, condition), "x", "y")


def _functions(levels: int, calls: int, *, recursive: bool = False) -> ModelProto:
    """Functions that call the one before several times: the last one is calls to the power of levels nodes."""
    model = helper.make_model(
        helper.make_graph(
            [NodeProto(op_type=f"f{levels}", domain="local", input=["x"], output=["y"])],
            "g",
            [helper.make_tensor_value_info("x", 1, [2])],
            [helper.make_tensor_value_info("y", 1, [2])],
        ),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("local", 1)],
        ir_version=9,
    )
    for level in range(levels + 1):
        inner = f"f{level - 1}" if level or recursive else ""
        if level == 0 and recursive:
            inner = f"f{levels}"
        op, domain = (inner, "local") if inner else ("Neg", "")
        nodes = [
            NodeProto(op_type=op, domain=domain, input=[f"v{i}" if i else "x"], output=[f"v{i + 1}"])
            for i in range(calls)
        ]
        nodes[-1].output[0] = "y"
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
        model.functions.append(
            FunctionProto(name=f"f{level}", domain="local", input=["x"], output=["y"], node=nodes, opset_import=imports)
        )
    return model


def _wide(count: int) -> ModelProto:
    """One operator with very many operands."""
    operands = ", ".join(["x"] * count)
    return _parsed(f"(float[2] x) => (float[a] y) {{ y = Concat<axis = 0>({operands}) }}")


def _ranked(rank: int) -> ModelProto:
    return _declared(*[1] * rank, raw=bytes(4))


def _fields(count: int) -> bytes:
    """A model in front of which stand fields that nobody knows."""
    return b"\xf8\x07\x00" * count + chain(2)


#: Every model that is tried, by what it asks for.
CASES: dict[str, Callable[[], ModelProto | bytes]] = {
    "4 TB tensor in a file of 200 bytes": lambda: _declared(_TERA),
    "4 TB tensor with one element of data": lambda: _declared(_TERA, raw=bytes(4)),
    "4 TB sparse tensor": lambda: _sparse(_TERA),
    "dims whose product overflows 64 bits": lambda: _declared(1 << 32, 1 << 32, 1 << 32, raw=bytes(4)),
    "dims whose product overflows to 1": lambda: _declared((1 << 62) + 1, 1 << 62, 1 << 62, raw=bytes(4)),
    "huge dims and none": lambda: _declared(1 << 40, 0, 1 << 40),
    "negative dims": lambda: _declared(-4, -1, raw=bytes(16)),
    "dims of 2**63 - 1": lambda: _declared((1 << 63) - 1, raw=bytes(4)),
    "tensor of rank 100": lambda: _ranked(100),
    "tensor of rank 100 000": lambda: _ranked(100_000),
    "input of 4 TB": lambda: _input(_TERA),
    "input whose size overflows": lambda: _input(1 << 40, 1 << 40),
    "input of 2**62": lambda: _input(1 << 62),
    "input of rank 1000": lambda: _input(*[2] * 1000),
    "ConstantOfShape": lambda: _parsed(
        f"(float[4] x) => (float[a] y) <int64[1] s = {{{_TERA}}}> {{ c = ConstantOfShape(s)  y = Add(c, x) }}"
    ),
    "ConstantOfShape, overflowing": lambda: _parsed(
        f"() => (float[a, b, c] y) <int64[3] s = {{{1 << 40}, {1 << 40}, {1 << 40}}}> {{ y = ConstantOfShape(s) }}"
    ),
    "Expand": lambda: _parsed(f"() => (float[a] y) <float x = {{1}}, int64[1] s = {{{_TERA}}}> {{ y = Expand(x, s) }}"),
    "Expand of an input, summed": lambda: _parsed(
        f"(float[1] x) => (float y) <int64[1] s = {{{_TERA}}}> {{ e = Expand(x, s)  y = ReduceSum<keepdims = 0>(e) }}"
    ),
    "Expand of a constant, summed": lambda: _parsed(
        f"() => (float y) <float[1] x = {{1}}, int64[1] s = {{{_TERA}}}> "
        "{ e = Expand(x, s)  y = ReduceSum<keepdims = 0>(e) }"
    ),
    "Tile": lambda: _parsed(
        f"() => (float[a] y) <float[2] x = {{1, 2}}, int64[1] s = {{{_TERA}}}> {{ y = Tile(x, s) }}"
    ),
    "Tile of an input": lambda: _parsed(
        f"(float[2] x) => (float[a] y) <int64[1] s = {{{_TERA}}}> {{ t = Tile(x, s)  y = Relu(t) }}"
    ),
    "Range": lambda: _parsed(
        f"() => (int64[a] y) <int64 s = {{0}}, int64 e = {{{_TERA}}}, int64 d = {{1}}> {{ y = Range(s, e, d) }}"
    ),
    "Range with a step of 0": lambda: _parsed(
        "() => (int64[a] y) <int64 s = {0}, int64 e = {9}, int64 d = {0}> { y = Range(s, e, d) }"
    ),
    "Range of tiny floats": lambda: _parsed(
        "() => (float[a] y) <float s = {0}, float e = {1e30}, float d = {1e-30}> { y = Range(s, e, d) }"
    ),
    "Pad": lambda: _parsed(f"(float[2] x) => (float[a] y) <int64[2] p = {{{_TERA}, {_TERA}}}> {{ y = Pad(x, p) }}"),
    "Pad of a constant": lambda: _parsed(
        f"() => (float[a] y) <float[2] x = {{1, 2}}, int64[2] p = {{{_TERA}, 0}}> {{ y = Pad(x, p) }}"
    ),
    "negative Pad": lambda: _parsed(
        f"(float[2] x) => (float[a] y) <int64[2] p = {{-{_TERA}, {_TERA}}}> {{ y = Pad(x, p) }}"
    ),
    "OneHot": lambda: _parsed(
        f"(int64[2] x) => (float[a, b] y) <int64 d = {{{_TERA}}}, float[2] v = {{0, 1}}> {{ y = OneHot(x, d, v) }}"
    ),
    "convolution padded": lambda: _parsed(
        f"(float[1, 1, 4, 4] x, float[1, 1, 2, 2] w) => (float[a, b, c, d] y) "
        f"{{ y = Conv<pads = [{1 << 31}, {1 << 31}, {1 << 31}, {1 << 31}]>(x, w) }}"
    ),
    "pooling of a wide window": lambda: _parsed(
        f"(float[1, 1, 4, 4] x) => (float[a, b, c, d] y) "
        f"{{ y = AveragePool<kernel_shape = [{1 << 30}, {1 << 30}], "
        f"pads = [{1 << 30}, {1 << 30}, {1 << 30}, {1 << 30}]>(x) }}"
    ),
    "outer product": lambda: _parsed(
        "(float[1000000, 1] x, float[1, 1000000] w) => (float[a, b] y) { y = MatMul(x, w) }"
    ),
    "Split into a million": lambda: _parsed(
        "(float[1000000] x) => (float[a] y, float[b] z) { y, z = Split<num_outputs = 1000000>(x) }", 18
    ),
    "Resize": lambda: _parsed(
        "(float[1, 1, 4, 4] x) => (float[a, b, c, d] y) <float[4] s = {1, 1, 1e9, 1e9}> { y = Resize(x, , s) }"
    ),
    "Einsum": lambda: _parsed(
        '(float[1000] x) => (float[a, b, c, d, e] y) { y = Einsum<equation = "a,b,c,d,e->abcde">(x, x, x, x, x) }'
    ),
    "Loop without end": lambda: _parsed(
        f"(float[2] x, bool c) => (float[2] y, float[a, 2] all) <int64 n = {{{(1 << 63) - 1}}}> "
        "{ y, all = Loop(n, c, x)"
        "<body = b (int64 i, bool k, float[2] s) => (bool d, float[2] t, float[2] u) "
        "{ d = Identity(k)  t = Add(s, s)  u = Identity(t) }> }"
    ),
    "constant doubled 60 times": lambda: _doubling(60),
    "constant doubled 70 times": lambda: _doubling(70),
    "If nested 20 deep": lambda: _nested(20),
    "If nested 32 deep": lambda: _nested(32),
    "If nested 500 deep": lambda: _nested(500),
    "functions of 2**10 nodes": lambda: _functions(9, 2),
    "functions of 2**20 nodes": lambda: _functions(20, 2),
    "functions of 2**60 nodes": lambda: _functions(60, 2),
    "functions of 1000**7 nodes": lambda: _functions(6, 1000),
    "functions called 1000 deep": lambda: _functions(1000, 1),
    "functions without end": lambda: _functions(3, 2, recursive=True),
    "chain of 2000 nodes": lambda: chain(2000),
    "chain of 1 000 000 nodes": lambda: chain(1_000_000),
    "operator of 100 000 operands": lambda: _wide(100_000),
    "300 000 unknown fields": lambda: _fields(300_000),
}
NAMES = tuple(CASES)


def attempt(number: int, _seed: int, folder: Path) -> Found:
    """One model, read and optimised."""
    name = NAMES[number % len(NAMES)]
    model = CASES[name]()
    path = folder / "model.onnx"
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    del model
    forget_peak()
    came_to, fault = read_and_optimise(path)
    return came_to, None if fault is None else f"{name}: {fault}"
