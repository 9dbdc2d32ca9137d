"""Model files that name other files: nothing outside their folder is read, nothing that is no file is waited for."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, parser

from benchmarks.faults.files import BOUNDS, LIMITS
from benchmarks.faults.watch import Found
from eqsat.errors import EqsatError

__all__ = ["BOUNDS", "CASES", "attempt"]
_ELEMENTS = 4
#: What lies outside the folder of the model, and must not be in any message or result.
_SECRET = np.full(_ELEMENTS, 1234.5, np.float32).tobytes()

#: Makes what a location stands for, in the folder of the model; returns the location.
Place = Callable[[Path], str]


def _named(location: str) -> Place:
    return lambda _folder: location


def _link(name: str, target: str) -> Place:
    def place(folder: Path) -> str:
        (folder / name).symlink_to(target)
        return name

    return place


def _linked_folder(folder: Path) -> str:
    (folder / "inside").symlink_to("..")
    return "inside/secret.bin"


def _fifo(folder: Path) -> str:
    os.mkfifo(folder / "pipe")
    return "pipe"


def _socket(folder: Path) -> str:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(folder / "socket"))
    return "socket"


def _folder(folder: Path) -> str:
    (folder / "sub").mkdir()
    return "sub"


def _unreadable(folder: Path) -> str:
    (folder / "closed.bin").symlink_to("/proc/1/mem")
    return "closed.bin"


#: Every location that is tried, by what it is.
CASES: dict[str, Place] = {
    "absolute": lambda folder: str(folder.parent / "secret.bin"),
    "absolute, system": _named("/etc/passwd"),
    "parent": _named("../secret.bin"),
    "parent, by a detour": _named("sub/../../secret.bin"),
    "parent, doubled slashes": _named("..//./secret.bin"),
    "parent, backslash": _named("..\\secret.bin"),
    "link out": _link("link.bin", "../secret.bin"),
    "link out, absolute": _link("link.bin", "/etc/passwd"),
    "link to a link out": lambda f: (_link("one", "../secret.bin")(f), _link("two", "one")(f))[1],
    "linked folder": _linked_folder,
    "link to itself": _link("loop", "loop"),
    "links in a circle": lambda f: (_link("a", "b")(f), _link("b", "a")(f))[1],
    "link to nothing": _link("dangling", "nowhere"),
    "link to a device": _link("zero", "/dev/zero"),
    "link to memory": _unreadable,
    "endless device": _named("/dev/zero"),
    "random device": _named("/dev/urandom"),
    "standard input": _named("/dev/stdin"),
    "descriptor": _named("/proc/self/fd/0"),
    "memory": _named("/proc/self/mem"),
    "pipe": _fifo,
    "socket": _socket,
    "folder": _folder,
    "the folder itself": _named("."),
    "nothing": _named(""),
    "NUL": _named("a\0b"),
    "NUL after a good name": _named("good.bin\0"),
    "newline": _named("a\nb"),
    "terminal control": _named("\x1b[2Jgone"),
    "long name": _named("l" * 300),
    "long path": _named("x/" * 2500 + "x"),
    "URL": _named("file:///etc/passwd"),
    "home": _named("~/secret.bin"),
    "variable": _named("$HOME/secret.bin"),
    "not UTF-8": _named("\udcff.bin"),
    "slash after a file": _named("good.bin/"),
    "inside a file": _named("good.bin/x"),
    "the model itself": _named("model.onnx"),
}

#: What is tried as the model, not as a file of it.
MODELS: dict[str, Callable[[Path], Path]] = {
    "model: pipe": lambda folder: folder / _fifo(folder),
    "model: socket": lambda folder: folder / _socket(folder),
    "model: folder": lambda folder: folder,
    "model: endless device": lambda _: Path("/dev/zero"),
    "model: memory": lambda _: Path("/proc/self/mem"),
    "model: link to itself": lambda folder: folder / _link("loop", "loop")(folder),
    "model: long name": lambda folder: folder / ("l" * 300),
    "model: NUL": lambda folder: folder / "a\0b",
    "model: file of no size": lambda _: Path("/proc/self/status"),
}
NAMES = (*CASES, *MODELS)


def attempt(number: int, _seed: int, folder: Path) -> Found:
    """One location, in an initializer and in an attribute of a node; or one place that is said to be a model."""
    name = NAMES[number % len(NAMES)]
    place = folder / "model"
    place.mkdir()
    (folder / "secret.bin").write_bytes(_SECRET)
    (place / "good.bin").write_bytes(bytes(4 * _ELEMENTS))
    if name in MODELS:
        return _verdict(name, MODELS[name](place))
    location = CASES[name](place)
    for in_attribute in (False, True):
        path = place / "model.onnx"
        path.write_bytes(model_with(location, in_attribute=in_attribute))
        came_to, fault = _verdict(name, path)
        if fault is not None:
            return came_to, f"{name}, {'attribute' if in_attribute else 'initializer'}: {fault}"
    return came_to, None


def model_with(location: str, *, in_attribute: bool = False) -> bytes:
    """A model whose tensor lies at a location, which need not be UTF-8: surrogates stand for other bytes."""
    raw = location.encode("utf-8", "surrogateescape")
    stand_in = "@" * len(raw)
    data = _attribute(stand_in) if in_attribute else _initializer(stand_in)
    return data.replace(stand_in.encode(), raw) if raw else data


def _verdict(name: str, path: Path) -> Found:
    import eqsat

    try:
        result = eqsat.optimize(path, **LIMITS)
    except EqsatError as error:
        return "refused", f"the message tells what lies outside: {error}" if "1234" in str(error) else None
    held = b"".join(c.array.tobytes() for c in result.graph.constants.values())
    if name in ("the model itself", "slash after a file"):
        return "read inside", None
    return "read", f"{len(held)} bytes were read"


def _outside(location: str) -> TensorProto:
    tensor = TensorProto(name="w", dims=[_ELEMENTS], data_type=TensorProto.FLOAT)
    tensor.data_location = TensorProto.EXTERNAL
    if location:
        tensor.external_data.add(key="location", value=location)
    return tensor


def _initializer(location: str) -> bytes:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { y = Add(x, w) }'
    model = parser.parse_model(text)
    model.graph.initializer.append(_outside(location))
    data: bytes = model.SerializeToString()
    return data


def _attribute(location: str) -> bytes:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { y = Add(x, w) }'
    model = parser.parse_model(text)
    model.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=_outside(location)))
    data: bytes = model.SerializeToString()
    return data
