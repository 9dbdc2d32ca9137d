"""Changes to model files: of their bytes, of the fields of their messages, and of what the model says."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.message import DecodeError
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, defs

from eqsat.language.onnx.files import wire

#: Numbers at which arithmetic of sizes goes wrong.
NUMBERS = (0, 1, -1, 2, -2, 3, 7, 100, -100, 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 40, 1 << 62)
NUMBERS += (-(1 << 31), -(1 << 40), (1 << 63) - 1, -(1 << 63))
#: Names that files, messages and other models have trouble with.
NAMES = ("", "x", "y", "a\0b", "a\nb", "../../x", "/etc/passwd", "?0", " ", "é" * 50, "n" * 5000, "-1", "x/1", ".")
#: Places of data that are none, or lie elsewhere.
LOCATIONS = ("", ".", "..", "../w.bin", "/dev/zero", "/etc/passwd", "/proc/self/mem", "w.bin/", "w.bin/x", "a/../w.bin")
LOCATIONS += ("a\0b", "a\nb", "l" * 300, "x/" * 2100, "C:\\w.bin", "w.bin\\", "~/w.bin", "file:///etc/passwd", "w.bin")

Change = Callable[[random.Random, Any], None]


def mutated(data: bytes, rng: random.Random) -> bytes:
    """A model with one to four changes of one kind; the kinds are equally likely."""
    kind = rng.choice((_of_bytes, _of_fields, _of_messages))
    for _ in range(rng.randint(1, 4)):
        data = kind(data, rng)
        if not data:
            return b"\0"
    return data


def _of_bytes(data: bytes, rng: random.Random) -> bytes:
    """Flipped bits, other bytes, cuts, copies, and a shorter end."""
    result = bytearray(data)
    at = rng.randrange(len(result))
    match rng.randrange(6):
        case 0 | 1:
            result[at] ^= 1 << rng.randrange(8)
        case 2:
            result[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        case 3:
            del result[at : at + rng.randint(1, 8)]
        case 4:
            result[at:at] = result[at : at + rng.randint(1, 40)]
        case 5 if rng.random() < 0.2:
            del result[at:]
    return bytes(result)


def _of_fields(data: bytes, rng: random.Random) -> bytes:
    """A field of some message left out, doubled, moved, renumbered or given another number as its value."""
    path = _path(data, rng)
    if path is None:
        return data
    return _rebuilt(data, path, _field_change(data, path[-1], rng))


def _path(data: bytes, rng: random.Random) -> list[wire.Field] | None:
    """Fields, each inside the one before it; how deep is drawn."""
    view, path = memoryview(data), []
    begin, end = 0, len(data)
    for _ in range(rng.randint(1, 6)):
        try:
            inside = list(wire.fields(view, begin, end))
        except wire.WireError:
            break
        if not inside:
            break
        path.append(rng.choice(inside))
        begin, end = path[-1].start, path[-1].end
        if path[-1].kind != 2:
            break
    return path or None


def _field_change(data: bytes, field: wire.Field, rng: random.Random) -> bytes:
    """What stands in the place of a field."""
    whole, value = data[field.begin : field.end], data[field.start : field.end]
    match rng.randrange(5):
        case 0:
            return b""
        case 1:
            return whole * rng.choice((2, 2, 2, 50))
        case 2:
            number = rng.choice((1, 2, 5, 8, 9, 13, 20, 99, 1 << 28))
            return wire.varint(number << 3 | field.kind) + _sized(field, value)
        case 3:
            return wire.varint(field.number << 3) + wire.varint(rng.choice(NUMBERS) & ((1 << 64) - 1))
        case _:
            text = rng.choice((b"", b"\xff\xfe", b"\0" * 9, b"x" * 70000, value[::-1], value + value))
            return wire.header(field.number, len(text)) + text


def _sized(field: wire.Field, value: bytes) -> bytes:
    return wire.varint(len(value)) + value if field.kind == 2 else value


def _rebuilt(data: bytes, path: list[wire.Field], new: bytes) -> bytes:
    """The bytes with the innermost field replaced, and the lengths of those around it set right."""
    for outer, inner in zip(reversed(path[:-1]), reversed(path[1:]), strict=True):
        body = data[outer.start : inner.begin] + new + data[inner.end : outer.end]
        new = wire.header(outer.number, len(body)) + body
    return data[: path[0].begin] + new + data[path[0].end :]


def _of_messages(data: bytes, rng: random.Random) -> bytes:
    """Something else said with a well-formed message."""
    try:
        model = ModelProto.FromString(data)
    except DecodeError:
        return data
    graphs = list(_graphs(model.graph))
    change, subjects = rng.choice(_changes(model, rng.choice(graphs)))
    if subjects:
        change(rng, rng.choice(subjects))
    made: bytes = model.SerializeToString()
    return made


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


def _changes(model: ModelProto, graph: GraphProto) -> list[tuple[Change, list[Any]]]:
    """What can be changed, and in what."""
    nodes = list(graph.node)
    tensors = list(graph.initializer)
    tensors += [a.t for n in nodes for a in n.attribute if a.HasField("t")]
    tensors += [t for s in graph.sparse_initializer for t in (s.values, s.indices)]
    values = [*graph.input, *graph.output, *graph.value_info]
    attributes = [a for n in nodes for a in n.attribute]
    return [
        *[(_renamed, [*nodes, *values, *tensors])] * 3,
        *[(_crossed, [graph])] * 2,
        *[(_dims_changed, [*tensors, *graph.sparse_initializer])] * 3,
        *[(_data_changed, tensors)] * 2,
        *[(_placed_outside, tensors)] * 2,
        *[(_typed, values)] * 3,
        *[(_attribute_changed, attributes)] * 4,
        *[(_node_changed, nodes)] * 3,
        (_nodes_moved, [graph]),
        (_wrapped, [graph]),
        (_header_changed, [model]),
    ]


def _name(rng: random.Random) -> str:
    return rng.choice(NAMES)


def _renamed(rng: random.Random, subject: Any) -> None:
    """A name that nothing else has, or that something else has."""
    if not isinstance(subject, NodeProto):
        subject.name = _name(rng)
        return
    names = rng.choice((subject.input, subject.output))
    if names:
        names[rng.randrange(len(names))] = _name(rng)


def _crossed(rng: random.Random, graph: GraphProto) -> None:
    """A node reads or makes what another one makes: cycles, double definitions, other types."""
    names = [o for n in graph.node for o in n.output] + [t.name for t in graph.initializer]
    nodes = [n for n in graph.node if n.input]
    if names and nodes:
        node = rng.choice(nodes)
        target = node.input if rng.random() < 0.7 else node.output
        if target:
            target[rng.randrange(len(target))] = rng.choice(names)


def _dims_changed(rng: random.Random, tensor: Any) -> None:
    match rng.randrange(4):
        case 0 if tensor.dims:
            tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(NUMBERS)
        case 1:
            tensor.dims.append(rng.choice(NUMBERS))
        case 2:
            tensor.dims[:] = tensor.dims[::-1]
        case _:
            del tensor.dims[rng.randint(0, 1) :]


def _data_changed(rng: random.Random, tensor: TensorProto) -> None:
    match rng.randrange(5):
        case 0:
            tensor.raw_data = tensor.raw_data[: rng.randint(0, len(tensor.raw_data))]
        case 1:
            tensor.raw_data += bytes(rng.randint(1, 9))
        case 2:
            tensor.data_type = rng.choice((*range(25), 99, 1 << 30))
        case 3:
            tensor.float_data.extend([1.0] * rng.randint(1, 4))
        case _:
            tensor.raw_data = bytes(rng.randrange(256) for _ in tensor.raw_data)


def _placed_outside(rng: random.Random, tensor: TensorProto) -> None:
    tensor.data_location = TensorProto.EXTERNAL
    if rng.random() < 0.5:
        del tensor.external_data[:]
    if rng.random() < 0.5:
        tensor.ClearField("raw_data")
    entries = {"location": rng.choice(LOCATIONS)}
    for key in ("offset", "length"):
        if rng.random() < 0.4:
            entries[key] = rng.choice((*map(str, NUMBERS), "", "many", "1e3", "٣", "0x10", " 4", "9" * 5000))
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)


def _typed(rng: random.Random, value: Any) -> None:
    type = value.type.tensor_type
    match rng.randrange(6):
        case 0:
            type.elem_type = rng.choice((*range(25), 99))
        case 1:
            value.ClearField("type")
        case 2:
            type.ClearField("shape")
        case 3:
            value.type.sequence_type.elem_type.tensor_type.elem_type = 1
        case 4 if type.shape.dim:
            dim = rng.choice(type.shape.dim)
            dim.dim_value = rng.choice(NUMBERS)
        case _:
            type.shape.dim.add(dim_param=_name(rng))


def _attribute_changed(rng: random.Random, attribute: AttributeProto) -> None:
    match rng.randrange(6):
        case 0:
            attribute.i = rng.choice(NUMBERS)
        case 1 if attribute.ints:
            attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(NUMBERS)
        case 1 | 2:
            attribute.ints.extend([rng.choice(NUMBERS)] * rng.choice((1, 1, 4, 1000)))
        case 3:
            attribute.type = rng.choice(range(15))
        case 4:
            attribute.f, attribute.s = rng.choice((float("nan"), float("inf"), -1e38)), _name(rng).encode()
        case _:
            attribute.name = rng.choice(("axis", "axes", "perm", "to", "value", "body", "pads", _name(rng)))


_OPERATORS = tuple(sorted({s.name for s in defs.get_all_schemas() if s.domain == ""}))


def _node_changed(rng: random.Random, node: NodeProto) -> None:
    match rng.randrange(7):
        case 0 | 1 | 2:
            node.op_type = rng.choice(_OPERATORS)
        case 3:
            node.domain = rng.choice(("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "local", _name(rng)))
        case 4 if node.attribute:
            del node.attribute[rng.randrange(len(node.attribute))]
        case 5:
            rng.choice((node.input, node.output)).append(_name(rng))
        case _:
            names = rng.choice((node.input, node.output))
            del names[rng.randint(0, len(names)) :]


def _nodes_moved(rng: random.Random, graph: GraphProto) -> None:
    nodes = [NodeProto.FromString(n.SerializeToString()) for n in graph.node]
    match rng.randrange(4):
        case 0:
            nodes.reverse()
        case 1:
            rng.shuffle(nodes)
        case 2 if nodes:
            nodes.append(rng.choice(nodes))
        case _ if nodes:
            del nodes[rng.randrange(len(nodes))]
    del graph.node[:]
    graph.node.extend(nodes)


def _wrapped(rng: random.Random, graph: GraphProto) -> None:
    """A copy of the graph inside a node of its own."""
    if graph.node and graph.ByteSize() < 1 << 16:
        inner = GraphProto.FromString(graph.SerializeToString())
        attribute = rng.choice(graph.node).attribute.add(name=rng.choice(("then_branch", "else_branch", "body")))
        attribute.type = AttributeProto.GRAPH
        attribute.g.CopyFrom(inner)


def _header_changed(rng: random.Random, model: ModelProto) -> None:
    match rng.randrange(4):
        case 0:
            model.ir_version = rng.choice(NUMBERS)
        case 1 if model.opset_import:
            rng.choice(model.opset_import).version = rng.choice((*range(30), *NUMBERS))
        case 2:
            model.opset_import.add(domain=_name(rng), version=rng.choice(NUMBERS))
        case _ if model.functions:
            function = rng.choice(model.functions)
            function.node.append(rng.choice(function.node))
            function.name = rng.choice((function.name, "inner", "twice", _name(rng)))
