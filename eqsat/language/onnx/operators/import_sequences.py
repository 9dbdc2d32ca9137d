"""Import of sequences and optional values whose elements are known: their readers read those.

The nodes that make sequences stay opaque; where nothing but what is read here reads them, they are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from eqsat.language.declaration import normal_axis
from eqsat.language.onnx.operators.reasons import OPTIONAL, SEQUENCE
from eqsat.language.onnx.read.importing import Call, Importer, Unsupported, integer
from eqsat.language.terms import Constant, Dim, DType, TensorType

#: Elements that a tensor is split into to be read one by one.
_MOST = 256


def _made(elements: Callable[[Call], Sequence[str]]) -> Importer:
    """A node that makes a sequence: its elements are kept in mind, and the node stays for whatever else reads it."""

    def translate(call: Call) -> None:
        call.know_elements(elements(call))
        raise Unsupported(SEQUENCE)

    return translate


def _given(call: Call) -> list[str]:
    return [call.value(i) for i in range(call.arity)]


def _place(call: Call, index: int, count: int) -> int:
    """A position in a sequence of so many elements, counted from its begin."""
    position = int(call.integers(index)[0])
    place = position + count if position < 0 else position
    if not 0 <= place < count:
        raise Unsupported(f"position {position} in {count} elements")
    return place


def _inserted(call: Call) -> list[str]:
    elements = list(call.elements(0))
    # One past the last is a position too.
    place = _place(call, 2, len(elements) + 1) if call.has(2) and call.integers(2)[0] >= 0 else None
    if call.has(2) and place is None:
        place = _place(call, 2, len(elements))
    elements.insert(len(elements) if place is None else place, call.value(1))
    return elements


def _erased(call: Call) -> list[str]:
    elements = list(call.elements(0))
    del elements[_place(call, 1, len(elements)) if call.has(1) else len(elements) - 1]
    return elements


def _split(call: Call) -> list[str]:
    """The parts of a tensor along an axis: of one size but the last, of given sizes, or single ones."""
    shape = call.shape(0)
    axis = call.axis(0)
    size = call.size(0, axis)
    single = not call.has(1)
    if not single and not call.attrs.get("keepdims", 1):
        raise Unsupported("keepdims = 0 beside sizes, which ONNX takes no notice of and ONNX Runtime does")
    sizes: list[Dim]
    if single:
        sizes = [1] * size
    elif call.shape(1):
        sizes = list(call.dims(1))
    else:
        part = integer(call.dims(1)[0])
        if part < 1:
            raise Unsupported(f"parts of {part}")
        sizes = [min(part, size - start) for start in range(0, size, part)]
    if not 0 < len(sizes) <= _MOST:
        raise Unsupported(f"{len(sizes)} parts")
    parts = call.make_several("split", len(sizes), call.value(0), axis=axis, sizes=tuple(sizes))
    if not single or call.attrs.get("keepdims", 1):
        return parts
    return [call.make("reshape", part, shape=(*shape[:axis], *shape[axis + 1 :])) for part in parts]


def _tensors(call: Call, elements: Sequence[str]) -> list[TensorType]:
    types = [call.type_of(value) for value in elements]
    if any(type.dtype is DType.STRING for type in types):
        raise Unsupported("operates on strings")
    return types


def _at(call: Call) -> None:
    elements = call.elements(0)
    element = elements[_place(call, 1, len(elements))]
    _tensors(call, [element])
    call.emit("identity", element)


def _length(call: Call) -> None:
    call.emit_constant(Constant.of(np.array(len(call.elements(0)), np.int64)))


def _joined(call: Call) -> None:
    elements = list(call.elements(0))
    shapes = [type.shape for type in _tensors(call, elements)]
    if not elements or shapes[0] is None:
        raise Unsupported("a sequence without elements, or of ones whose rank is unknown")
    new = bool(call.attrs.get("new_axis", 0))
    axis = normal_axis(call.attrs["axis"], len(shapes[0]) + new)
    if new:
        pairs = list(zip(elements, shapes, strict=True))
        if any(shape is None for _, shape in pairs):
            raise Unsupported("elements whose rank is unknown")
        elements = [call.make("reshape", v, shape=(*s[:axis], 1, *s[axis:])) for v, s in pairs if s is not None]
    call.emit("concat", *elements, axis=axis)


def _element(call: Call) -> None:
    if not call.has(0) or not call.is_tensor(0):
        raise Unsupported(OPTIONAL)
    _tensors(call, [call.value(0)])
    call.emit("identity", call.value(0))


def _has_element(call: Call) -> None:
    if call.has(0) and not call.is_tensor(0):
        raise Unsupported(OPTIONAL)
    call.emit_constant(Constant.of(np.array(call.has(0), np.bool_)))


IMPORTS: Mapping[str, Importer] = {
    "ConcatFromSequence": _joined,
    "OptionalGetElement": _element,
    "OptionalHasElement": _has_element,
    "SequenceAt": _at,
    "SequenceConstruct": _made(_given),
    "SequenceEmpty": _made(lambda _call: ()),
    "SequenceErase": _made(_erased),
    "SequenceInsert": _made(_inserted),
    "SequenceLength": _length,
    "SplitToSequence": _made(_split),
}
