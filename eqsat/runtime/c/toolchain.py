"""Compilers of C on this machine, and the processor that they compile for."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from eqsat.errors import BackendError
from eqsat.runtime.threads import available_processors

#: Compilers by preference, after the one that CC names.
COMPILERS = ("cc", "gcc", "clang")
#: GNU C for this processor; integers wrap around, and sums of products may be rounded once.
FLAGS = (
    "-std=gnu17", "-O3", "-march=native", "-fPIC", "-shared", "-w", "-fwrapv", "-fno-strict-aliasing",
    "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast",
)  # fmt: skip
#: Parts of the names of macros that tell what a processor has, and bytes of vectors by such a macro.
_TELLING = ("AVX", "SSE", "FMA", "F16C", "ARM", "NEON", "znver")
_VECTORS = (("__AVX512F__", 64), ("__AVX__", 32))


@dataclass(frozen=True)
class Toolchain:
    """A compiler: how it is called, the version that it reports, and the processor that it compiles for."""

    command: tuple[str, ...]
    version: str
    macros: frozenset[str]

    @property
    def vector_bytes(self) -> int:
        """Bytes of the widest vectors of the processor."""
        return next((size for macro, size in _VECTORS if macro in self.macros), 16)

    @cached_property
    def has_threads(self) -> bool:
        """True if programs with threads of OpenMP compile and load: zig has no library for them."""
        text = (
            "int count(void) { int n = 0;\n#pragma omp parallel for reduction(+:n)\n"
            "for (int i = 0; i < 4; ++i) n += i;\nreturn n; }\n"
        )
        try:
            library = self.compiled(text, ("-fopenmp",))
        except BackendError:
            return False
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "threads.so"
            path.write_bytes(library)
            try:
                return bool(ctypes.CDLL(str(path)).count() == 6)
            except OSError:
                return False

    @property
    def architecture(self) -> str:
        """The processor and the compiler as text: kernels that are compiled under another one are others."""
        return "\n".join([self.version, *sorted(self.macros)])

    def compiled(self, text: str, flags: Sequence[str] = ()) -> bytes:
        """A shared library; BackendError with the first lines that the compiler says."""
        with tempfile.TemporaryDirectory() as folder:
            written, library = Path(folder) / "kernel.c", Path(folder) / "kernel.so"
            written.write_text(text, encoding="utf-8")
            command = [*self.command, *FLAGS, *flags, "-o", str(library), str(written), "-lm"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode or not library.exists():
                raise BackendError(
                    "\n".join(done.stderr.splitlines()[:6]) or f"exit {done.returncode}",
                    where=shlex.join(self.command),
                    expected="C that compiles",
                    remedy="set CC to another compiler, or report the text that `eqsat.emit` gives",
                )
            return library.read_bytes()


def compiler_version() -> str:
    """The version that the compiler of this machine reports, or that there is none."""
    try:
        return toolchain().version
    except BackendError as error:
        return error.what


@cache
def toolchain() -> Toolchain:
    """The compiler of this machine: CC, the system's, or that of the package ziglang; BackendError for none."""
    for command in _candidates():
        found = _probed(command)
        if found is not None:
            return found
    raise BackendError(
        "no C compiler is found",
        expected="CC, or one of: " + ", ".join(COMPILERS),
        remedy="install gcc or clang, or pip install 'eqsat[c]'",
    )


def _candidates() -> list[tuple[str, ...]]:
    named = os.environ.get("CC")
    commands = [tuple(shlex.split(named))] if named else []
    commands += [(name,) for name in COMPILERS]
    found = [(path, *rest) for name, *rest in commands if (path := shutil.which(name))]
    if importlib.util.find_spec("ziglang") is not None:
        found.append((sys.executable, "-m", "ziglang", "cc"))
    return found


def _probed(command: tuple[str, ...]) -> Toolchain | None:
    """A compiler that answers."""
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    macros = subprocess.run(
        [*command, "-march=native", "-dM", "-E", "-x", "c", os.devnull], capture_output=True, text=True, check=False
    )
    if version.returncode or macros.returncode:
        return None
    names = {line.split()[1] for line in macros.stdout.splitlines() if line.startswith("#define __")}
    kept = {name for name in names if any(part in name for part in _TELLING)}
    return Toolchain(command, version.stdout.partition("\n")[0], frozenset(kept))


def loop_threads(threads: int | None) -> int:
    """The threads that share loops: as many as are asked for, or one for each processor; 1 without OpenMP."""
    count = available_processors() if threads is None else threads
    return count if count > 1 and toolchain().has_threads else 1
