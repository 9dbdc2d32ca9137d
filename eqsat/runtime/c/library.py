"""Shared libraries of generated C: compiled once for a text, kept with other kernels, loaded into this process."""

from __future__ import annotations

import ctypes
import os
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from eqsat.runtime.c.toolchain import FLAGS, Toolchain, toolchain
from eqsat.runtime.cuda.compiler.store import Store, key_of
from eqsat.runtime.kernels.nests.printing.c_printer import ALONE

#: A function of a library, called with pointers.
Entry = Callable[..., int]


class Libraries:
    """Libraries by the text that they were compiled from, in this process and in the store.

    The threads that share loops are no part of a child that a process forks, where they would be waited for: its
    libraries stay on one thread.
    """

    def __init__(self, compiler: Toolchain, store: Store | None = None) -> None:
        self.compiler = compiler
        self._store = store if store is not None else Store()
        self._loaded: dict[str, ctypes.CDLL] = {}
        self._lock = threading.Lock()
        self._is_forked = False
        _KNOWN.add(self)
        #: How many texts were compiled, and not found in the store.
        self.compiled = 0

    def entry(self, text: str, name: str, flags: Sequence[str] = (), arguments: int = 1) -> Entry:
        """The function of a name in a text; compiled where neither this process nor the store has it."""
        flags = (f"-DOBJECT_HEAD={object.__basicsize__}", *flags)
        key = key_of(self.compiler.architecture, *self.compiler.command, *FLAGS, *flags, text)
        if key not in self._loaded:
            library = self._store.get(key)
            if library is None:
                library = self.compiler.compiled(text, flags)
                self.compiled += 1
                self._store.put(key, library)
            with self._lock:
                if key not in self._loaded:
                    self._loaded[key] = _loaded(library)
                    if self._is_forked:
                        _keep_alone(self._loaded[key])
        function = getattr(self._loaded[key], name)
        function.restype, function.argtypes = ctypes.c_int, (ctypes.c_void_p,) * arguments
        made: Entry = function
        return made

    def forked(self) -> None:
        """Keep all libraries to one thread, in a child of the process that loaded some of them."""
        self._lock = threading.Lock()  # another thread may have held it
        self._is_forked = self._is_forked or bool(self._loaded)
        for library in self._loaded.values():
            _keep_alone(library)


#: The libraries that there are.
_KNOWN: weakref.WeakSet[Libraries] = weakref.WeakSet()


def _forked() -> None:
    for one in _KNOWN:
        one.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _keep_alone(library: ctypes.CDLL) -> None:
    """Set the variable by which loops stay on one thread, where a library has loops that threads share."""
    with suppress(ValueError):
        ctypes.c_int.in_dll(library, ALONE).value = 1


def _loaded(library: bytes) -> ctypes.CDLL:
    handle, path = tempfile.mkstemp(suffix=".so")
    with os.fdopen(handle, "wb") as file:
        file.write(library)
    try:
        return ctypes.CDLL(path)
    finally:
        Path(path).unlink()  # it stays mapped until the process ends


@cache
def libraries() -> Libraries:
    """The libraries of this process, by this machine's compiler."""
    return Libraries(toolchain())
