"""Inputs that a caller passes: NumPy, CuPy or any DLPack array, checked, and the kind of array to return for them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from eqsat.errors import BackendError
from eqsat.language.terms import Graph, TensorType
from eqsat.runtime.inputs import checked_inputs

#: DLPack's kinds of devices whose memory the processor reads: CPU, and host memory pinned by CUDA.
_HOST = frozenset({1, 3})
#: Those that a GPU reads: its own memory, and managed memory.
_CUDA = frozenset({2, 13})
_NUMBERS = (bool, int, float, complex, list, tuple)


class CudaDevice(Protocol):
    """A GPU that arrays may lie on; `number` is CUDA's."""

    number: int

    def adopt(self, array: Any) -> Any:
        """A CuPy array over the memory of an array that lies on this GPU."""


@dataclass(frozen=True)
class PassedArrays:
    """The arrays a caller passed, by name, NumPy's or CuPy's, and the arrays to return, of the same kind.

    `on_device` says that outputs stay on the GPU; `wrap` converts them to the caller's kind.
    """

    arrays: Mapping[str, Any]
    on_device: bool
    wrap: Callable[[Any], Any]


def taken(graph: Graph, inputs: Mapping[str, Any], device: CudaDevice | None = None) -> PassedArrays:
    """The inputs in the graph's order, checked against its declarations.

    Outputs are NumPy's if any input is, or if there is none. BackendError for inputs that do not fit: a missing or
    unknown input, one of another shape, element type or device, or one that cannot be read.
    """
    read = {name: _read(graph, name, value, device) for name, value in inputs.items()}
    stand_ins = {name: _stand_in(array) if _is_on_device(array) else array for name, array in read.items()}
    checked = checked_inputs(graph, stand_ins)
    arrays = {name: read[name] if name in read and _is_on_device(read[name]) else a for name, a in checked.items()}
    on_device = bool(inputs) and all(_is_on_device(array) for array in read.values())
    return PassedArrays(arrays, on_device, _wrapping(inputs.values()))


def _read(graph: Graph, name: str, value: Any, device: CudaDevice | None) -> Any:
    """A value as NumPy's array or CuPy's; numbers, and objects that do not tell where they lie, unchanged."""
    if isinstance(value, (np.ndarray, np.generic, *_NUMBERS)):
        return value
    place = _place(value)
    if place is None or (place[0] in _HOST and not hasattr(value, "__dlpack__")):
        return value
    kind, number = place
    if kind in _HOST:
        return _by_dlpack(graph, name, value)
    if kind not in _CUDA:
        raise _misplaced(graph, name, f"a device of DLPack's kind {kind}", device)
    if device is None or number not in (device.number, None):
        raise _misplaced(graph, name, "a CUDA device" if number is None else f"CUDA device {number}", device)
    return device.adopt(value)


def _place(value: Any) -> tuple[int, int | None] | None:
    """The kind and number of the device an array lies on, as DLPack has them; None where it does not say."""
    if hasattr(value, "__dlpack_device__"):
        kind, number = value.__dlpack_device__()
        return int(kind), int(number)
    return (2, None) if hasattr(value, "__cuda_array_interface__") else None


def _misplaced(graph: Graph, name: str, found: str, device: CudaDevice | None) -> BackendError:
    here = "the host" if device is None else f"the host or CUDA device {device.number}"
    return BackendError(
        f"input {name!r} lies on {found}",
        where=graph.name,
        expected=f"arrays on {here}",
        remedy="copy it there, or pass it as a NumPy array",
    )


def _by_dlpack(graph: Graph, name: str, value: Any) -> np.ndarray[Any, Any]:
    try:
        return np.from_dlpack(value)
    except (BufferError, TypeError, RuntimeError, ValueError) as error:
        raise BackendError(
            f"input {name!r} cannot be read through DLPack: {error}",
            where=graph.name,
            expected=f"{name}: {graph.type(name) if name in graph.inputs else 'an input'}",
            remedy="pass it as a NumPy array",
        ) from error


def _is_on_device(array: Any) -> bool:
    return not isinstance(array, np.ndarray | np.generic) and hasattr(array, "__cuda_array_interface__")


def _stand_in(array: Any) -> np.ndarray[Any, Any]:
    """An array of NumPy's with the same shape and element type, and one element."""
    return np.broadcast_to(np.zeros((), array.dtype), tuple(array.shape))


def _wrapping(values: Iterable[Any]) -> Callable[[Any], Any]:
    """The conversion of an output to the kind of array that all inputs are; none for NumPy, CuPy and mixtures."""
    kinds = {type(value).__module__.partition(".")[0]: value for value in values}
    if len(kinds) != 1:
        return lambda array: array
    ((package, value),) = kinds.items()
    namespace: Any = value.__array_namespace__() if hasattr(value, "__array_namespace__") else sys.modules.get(package)
    if package in ("numpy", "cupy") or not hasattr(namespace, "from_dlpack"):
        return lambda array: array
    return lambda array: namespace.from_dlpack(array)


def span(array: Any) -> tuple[str, int, int]:
    """The memory that an array's elements lie in: "host" or "cuda", the first byte and the one after the last."""
    if not _is_on_device(array):
        return ("host", *np.lib.array_utils.byte_bounds(array))
    face = array.__cuda_array_interface__
    # An array of NumPy's that is never read stands where that one does, so that its strides need not be walked here.
    mirror = np.lib.stride_tricks.as_strided(
        np.empty(1, array.dtype), tuple(face["shape"]), face["strides"] or np.empty(face["shape"], array.dtype).strides
    )
    low, high = np.lib.array_utils.byte_bounds(mirror)
    shift = int(face["data"][0]) - int(mirror.__array_interface__["data"][0])
    return "cuda", low + shift, high + shift


def overlap(one: tuple[str, int, int], other: tuple[str, int, int]) -> bool:
    """Return whether two spans have memory in common."""
    return one[0] == other[0] and one[1] < other[2] and other[1] < one[2]


def is_same(one: Any, other: Any) -> bool:
    """Return whether two arrays of one shape and element type have their elements in the same places."""
    return span(one) == span(other) and tuple(one.strides) == tuple(other.strides)


def check_apart(inputs: Mapping[str, Any], outputs: Mapping[str, Any], where: str) -> None:
    """BackendError where an input and an output, or two outputs, share memory."""
    written = [(name, span(array)) for name, array in outputs.items()]
    pairs = [(f"input {n!r}", span(a), f"output {o!r}", s) for n, a in inputs.items() for o, s in written]
    pairs += [(f"output {o!r}", s, f"output {p!r}", t) for i, (o, s) in enumerate(written) for p, t in written[i + 1 :]]
    for one, here, other, there in pairs:
        if overlap(here, there):
            raise BackendError(
                f"{one} and {other} share memory",
                where=where,
                expected="outputs apart from inputs and from each other",
                remedy=f"pass a copy as {one}" if one.startswith("input") else "pass arrays of their own",
            )


def check_output(name: str, array: Any, wanted: TensorType, where: str, device: CudaDevice | None) -> Any:
    """The memory that an output is to be written to, as NumPy's array or CuPy's; BackendError where it cannot be."""
    seen, fault = _memory(array, device)
    if fault:
        pass
    elif tuple(seen.shape) != wanted.static:
        fault = f"has shape {list(seen.shape)}"
    elif np.dtype(seen.dtype) != wanted.dtype.numpy:
        fault = f"has element type {seen.dtype}"
    elif any(size > 1 and stride == 0 for size, stride in zip(seen.shape, seen.strides, strict=True)):
        fault = f"has strides {list(seen.strides)}, so that elements share memory"
    elif isinstance(array, np.ndarray) and not array.flags.writeable:
        fault = "is read-only"
    if fault:
        raise _unfit(name, fault, wanted, where)
    return seen


def _memory(array: Any, device: CudaDevice | None) -> tuple[Any, str]:
    """The memory of a caller's array, as NumPy's or CuPy's, and the fault of one that has none to write to."""
    if isinstance(array, np.ndarray):
        return array, ""
    place = _place(array)
    # Tensors of other packages are written to by these, since NumPy takes the memory of some for read-only.
    if place is None or (place[0] in _HOST and not (hasattr(array, "__setitem__") and hasattr(array, "__dlpack__"))):
        return None, f"is a {type(array).__name__}"
    if place[0] in _HOST:
        try:
            return np.from_dlpack(array), ""
        except (BufferError, TypeError, RuntimeError, ValueError) as error:
            return None, f"cannot be read through DLPack: {error}"
    if device is None or place not in ((2, device.number), (2, None)):
        return None, "lies on another device"
    return device.adopt(array), ""


def write_output(name: str, array: Any, made: Any, wanted: TensorType, where: str) -> None:
    """Copy an output to a caller's array, by the package that the array is of; BackendError where that refuses."""
    try:
        array[...] = made if isinstance(array, np.ndarray) else _wrapping([array])(made)
    except TypeError as error:  # arrays of some packages never change
        raise _unfit(name, f"is a {type(array).__name__}, which cannot be written to", wanted, where) from error


def _unfit(name: str, fault: str, wanted: TensorType, where: str) -> BackendError:
    return BackendError(
        f"the array for output {name!r} {fault}",
        where=where,
        expected=f"a writable array: {name}: {wanted}",
        remedy="leave it out, and take what is returned",
    )
