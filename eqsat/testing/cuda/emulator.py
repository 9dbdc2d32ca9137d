"""Kernels on the processor: compiled by a C++ compiler behind a shim, run block after block on host memory.

It shows what a kernel computes, not how fast, and not every race: threads take turns in one order or its reverse, so a
missing barrier is seen where one of the two orders breaks the kernel.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path

from eqsat.errors import BackendError
from eqsat.runtime.cuda.compiler.limits import LaunchLimits
from eqsat.runtime.cuda.compiler.store import Store, key_of
from eqsat.runtime.kernels.prelude import prelude
from eqsat.runtime.kernels.source import KernelSource

#: Kernels are run as for this GPU, of those known that which gives a block the most.
LIMITS = LaunchLimits.of("sm_90")
COMPILERS = ("c++", "g++", "clang++")
#: -Og compiles fastest per kernel run, and -O0 breaks the switching of fibres; arithmetic is not contracted, so that
#: every processor gives the same numbers.
FLAGS = (
    "-std=c++17", "-Og", "-fPIC", "-shared", "-w", "-fwrapv", "-fno-strict-aliasing", "-ffp-contract=off",
    "-fno-exceptions", "-fno-rtti", "-U_FORTIFY_SOURCE",
)  # fmt: skip

_DYNAMIC_SHARED = re.compile(
    r"extern\s+__shared__\s+(?:__align__\(\w+\)\s*|alignas\(\w+\)\s*)?([\w:]+(?:\s+\w+)*?)\s+(\w+)\s*\[\s*\]\s*;"
)


@cache
def shim() -> str:
    """The text that makes a kernel and the prelude C++ for a processor."""
    return "".join(
        files("eqsat.testing.cuda").joinpath(n).read_text(encoding="utf-8") for n in ("shim.h", "intrinsics.h")
    )


def emulate(source: KernelSource, addresses: Sequence[int], *, descending: bool = False) -> None:
    """Run a kernel on host memory, given the address of each argument's first element.

    Threads take turns in the order of their numbers, or `descending`. BackendError where the kernel does not compile,
    where its threads do not meet at a barrier or shuffle, or where it asks for more than a GPU has.
    """
    _check(source, addresses)
    if 0 in source.grid:
        return
    _emulator().kernel(source).run(source, addresses, descending)


def build(sources: Sequence[KernelSource]) -> None:
    """Compile many kernels at once, which takes far less time than one after the other."""
    _emulator().build(sources)


@dataclass
class _Kernel:
    """A compiled kernel; `turn` because shared memory and the threads' state are the library's own."""

    function: Callable[..., bytes | None]
    turn: threading.Lock = field(default_factory=threading.Lock)

    def run(self, source: KernelSource, addresses: Sequence[int], descending: bool) -> None:
        values = (*addresses, *source.numbers)
        pointers = (ctypes.c_void_p * max(len(values), 1))(*values)
        launch = (ctypes.c_uint * 8)(*source.grid, *source.block, source.shared, descending)
        with self.turn:
            fault = self.function(pointers, launch)
        if fault is not None:
            raise BackendError(
                fault.decode(),
                where=source.comment.partition("\n")[0],
                expected="threads that meet at the same barriers and shuffles, within their memory",
                remedy=f"its source is in {_kept(source)}",
            )


class _Emulator:
    """Kernels by the source they were compiled from, in this process and in the store."""

    def __init__(self) -> None:
        self._compiler = compiler()
        self._store = Store()
        self._kernels: dict[str, _Kernel] = {}
        self._lock = threading.Lock()

    def kernel(self, source: KernelSource) -> _Kernel:
        key = self._key(source)
        if key not in self._kernels:
            self.build([source])
        return self._kernels[key]

    def build(self, sources: Sequence[KernelSource]) -> None:
        with self._lock:
            wanted = {self._key(s): s for s in sources}
            missing = {k: s for k, s in wanted.items() if k not in self._kernels}
            if not missing:
                return
            name = key_of(*sorted(missing))
            library = self._store.get(name)
            if library is None:
                library = _compiled(missing, self._compiler[0])
                self._store.put(name, library)
            self._load(library, list(missing))

    def _load(self, library: bytes, keys: Sequence[str]) -> None:
        handle, name = tempfile.mkstemp(suffix=".so")
        with os.fdopen(handle, "wb") as file:
            file.write(library)
        try:
            loaded = ctypes.CDLL(name)
        finally:
            Path(name).unlink()  # what is mapped stays until the process ends
        lock = threading.Lock()
        for key in keys:
            function = getattr(loaded, f"run_{key}")
            function.restype = ctypes.c_char_p
            self._kernels[key] = _Kernel(function, lock)

    def _key(self, source: KernelSource) -> str:
        return key_of(
            prelude(),
            shim(),
            *self._compiler,
            *FLAGS,
            source.entry,
            source.code,
            _parameters(source),
        )


@cache
def _emulator() -> _Emulator:
    return _Emulator()


def compiler() -> tuple[str, str]:
    """The C++ compiler, and the version that it reports."""
    for name in filter(None, (os.environ.get("CXX"), *COMPILERS)):
        path = shutil.which(name)
        if path:
            said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
            return path, said.stdout
    raise BackendError(
        "no C++ compiler is found, which kernels take to run on the processor",
        expected="CXX, or one of: " + ", ".join(COMPILERS),
        remedy="install g++ or clang",
    )


def _check(source: KernelSource, addresses: Sequence[int]) -> None:
    where = source.comment.partition("\n")[0] or source.entry
    if len(addresses) != len(source.arguments):
        raise BackendError(
            f"{len(addresses)} addresses", where=where, expected=f"{len(source.arguments)}: one for each argument"
        )
    LIMITS.check(source, where=where)


def _compiled(sources: dict[str, KernelSource], compiler: str) -> bytes:
    """One library of several kernels; where that fails, the error of the first that does not compile."""
    with tempfile.TemporaryDirectory() as folder:
        written, library = Path(folder) / "kernels.cpp", Path(folder) / "kernels.so"
        written.write_text(_translation_unit(sources), encoding="utf-8")
        done = subprocess.run(
            [compiler, *FLAGS, "-o", str(library), str(written), "-lm"], capture_output=True, text=True, check=False
        )
        if not done.returncode:
            return library.read_bytes()
    if len(sources) > 1:
        for key, source in sources.items():
            _compiled({key: source}, compiler)
    (source,) = list(sources.values())[:1]
    path = _kept(source)
    log = path.with_suffix(".log")
    log.write_text(done.stderr, encoding="utf-8")
    said = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[:200])
    raise BackendError(
        f"a kernel does not compile: {said}",
        where=source.comment.partition("\n")[0] or source.entry,
        expected=f"CUDA C++ that {compiler} takes behind the shim",
        remedy=f"its source is in {path}, the compiler's log in {log}",
    )


def _parameters(source: KernelSource) -> str:
    """The numbers of pointers and of ints that a kernel takes."""
    return f"{len(source.arguments)}, {len(source.numbers)}"


def _kept(source: KernelSource) -> Path:
    """The kernel's text in a file of its own, for a person to read."""
    path = Path(tempfile.mkdtemp(prefix="eqsat-kernel-")) / f"{source.entry}.cu"
    path.write_text(source.text, encoding="utf-8")
    return path


def _translation_unit(sources: dict[str, KernelSource]) -> str:
    """Each kernel in a namespace of its own and, since C linkage knows none, under a name of its own."""
    parts = ['#line 1 "shim.h"', shim(), '#line 1 "prelude.cuh"', prelude()]
    for key, source in sources.items():
        entry = f"in_{key}::kernel_{key}"
        code = _DYNAMIC_SHARED.sub(r"\1* const \2 = (\1*)emulator::dynamic_shared();", source.code)
        parts += [
            f"#define {source.entry} kernel_{key}",
            f"namespace in_{key} {{",
            f'#line 1 "{source.entry}.cu"',
            code,
            "}",
            f"#undef {source.entry}",
            f'extern "C" const char* run_{key}(void** addresses, const unsigned* launch) {{',
            f"  auto body = [](void* p) {{ emulator::call<{_parameters(source)}>({entry}, (void**)p); }};",
            f'  return emulator::run("{source.entry}", body, addresses, launch);',
            "}",
        ]
    return "\n".join(parts) + "\n"
