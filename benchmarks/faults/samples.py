"""ONNX models that are changed to break them: small, and of everything that the format has."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

from benchmarks.random_graphs import random_graph
from eqsat.errors import EqsatError

#: The file beside a model that holds a tensor of it.
DATA_FILE, DATA = "w.bin", np.arange(64, dtype=np.float32).tobytes()

#: Convolution, shape arithmetic, an operator of another domain, branches.
BODY = """<ir_version: 8, opset_import: ["" : 17, "custom" : 1]>
g (float[n, 3, 8, 8] x, bool c) => (float[a, b] y, float[d, e] z)
<float[4] b = {1, 2, 3, 4}, int64[2] target = {0, -1}, int64[1] axes = {1}> {
    k = Conv<pads = [1, 1, 1, 1], kernel_shape = [3, 3]>(x, w, b)
    r = Relu(k)
    p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
    s = Shape(p)
    n = Gather<axis = 0>(s, axes)
    t = Reshape(p, target)
    u, v = Split<axis = 1>(t)
    q = custom.Magic<level = 3>(u)
    y = If(c)<then_branch = f() => (float[a, b] o) { o = Neg(q) }, else_branch = h() => (float[a, b] m) { m = Abs(v) }>
    z = Softmax(v)
}"""

_FUNCTIONS = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
g (float[2, 8] x, int64 i) => (float[2, 8] y, float[a, b, c] z)
<float[8, 8] w = {0}, int64[3] s = {2, 2, 4}, int64 one = {1}> {
    a = local.twice <alpha = 0.5> (x)
    m = MatMul(a, w)
    h = LayerNormalization<axis = -1>(m, scale, scale)
    y = local.twice (h)
    r = Reshape(y, s)
    t = Transpose<perm = [1, 0, 2]>(r)
    k = Range(one, i, one)
    z = Expand(t, s)
}
<domain: "local", opset_import: ["" : 17]>
twice <alpha: float = 1.0> (v) => (w) { u = LeakyRelu<alpha: float = @alpha>(v)  w = local.inner(u) }
<domain: "local", opset_import: ["" : 17]>
inner (v) => (w) { w = Add(v, v) }"""

_LOOP = """<ir_version: 9, opset_import: ["" : 20]>
g (float[3, n] x, int64 trips, bool go, string[k] words) => (float[3, n] y, float[a, 3, n] all, float[3, n] q)
<float scale = {0.5}, uint8 zero = {3}, int64[4] pads = {0, 1, 0, 2}, float fill = {0}> {
    y, all = Loop(trips, go, x)<body = b (int64 i, bool c, float[3, n] s) => (bool d, float[3, n] t, float[3, n] u) {
        d = Identity(c)
        t = Add(s, x)
        u = Mul(t, s)
    }>
    same = Identity(words)
    e = QuantizeLinear(x, scale, zero)
    f = DequantizeLinear(e, scale, zero)
    p = Pad<mode = "constant">(f, pads, fill)
    o = Slice(p, begin, end, axes)
    q = Where(mask, o, x)
}"""


def _tensors(model: ModelProto, **arrays: np.ndarray) -> ModelProto:
    model.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in arrays.items())
    return model


def convolution() -> ModelProto:
    """Operators of a vision network, an unknown operator and branches."""
    model = _tensors(parser.parse_model(BODY), w=np.ones((4, 3, 3, 3), np.float32))
    helper.set_model_props(model, {"author": "me"})
    return model


def functions() -> ModelProto:
    """Local functions that call one another, shapes from constants, and a tensor in a file of its own."""
    model = _tensors(parser.parse_model(_FUNCTIONS), scale=np.ones(8, np.float32))
    (weight,) = (t for t in model.graph.initializer if t.name == "w")
    weight.CopyFrom(TensorProto(name="w", dims=[8, 8], data_type=TensorProto.FLOAT))
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", DATA_FILE), ("offset", "0"), ("length", str(8 * 8 * 4))):
        weight.external_data.add(key=key, value=value)
    return model


def loop() -> ModelProto:
    """A loop, strings, quantisation, a sparse tensor, and indices that are constants."""
    model = parser.parse_model(_LOOP)
    mask = np.array([[True], [False], [True]])
    _tensors(model, begin=np.array([1]), end=np.array([-2]), axes=np.array([1]), mask=mask)
    values = numpy_helper.from_array(np.float32([1, 2]), "sparse")
    indices = numpy_helper.from_array(np.array([0, 5]), "at")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [3, 4]))
    model.graph.node.append(helper.make_node("MatMul", ["x", "dense"], ["extra"], name="last"))
    model.graph.node[-1].input[1] = "sparse"
    return model


_MADE = (convolution, functions, loop)


@cache
def _made(index: int) -> bytes:
    data: bytes = _MADE[index]().SerializeToString()
    return data


def sample(rng: random.Random) -> bytes:
    """A model as bytes: one of those above, or a random graph."""
    from eqsat.language.onnx.write.exporter import to_bytes

    while rng.random() < 0.5:
        try:
            return to_bytes(random_graph(rng.randrange(1 << 30), steps=rng.randint(1, 4)))
        except EqsatError:  # not every random graph can be written
            continue
    return _made(rng.randrange(len(_MADE)))
