"""Kernels compiled for a GPU by NVRTC, which needs neither a GPU nor its driver, nor the toolkit's headers."""

from __future__ import annotations

import importlib
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from eqsat.errors import BackendError
from eqsat.runtime.kernels.prelude import prelude

#: Compiler options of every kernel; ptxas is made to report how many registers it used.
OPTIONS = ("--std=c++17", "--ptxas-options=-v")
REMEDY = "pip install 'eqsat[cuda13]'"

_ENTRY = re.compile(r"__global__[^(]*?(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel as a GPU runs it, with the report of ptxas: registers a thread, static shared memory a block.

    `stack` is the memory of a thread that is no register, `spill_bytes` the traffic there because registers run out.
    """

    cubin: bytes
    registers: int
    spill_bytes: int
    stack: int
    shared: int
    log: str = field(compare=False)  # it says how long compiling took
    version: str = ""


class Nvrtc(Protocol):
    """The compiler behind one of the packages that call it."""

    version: str

    def compile(self, text: str, name: str, options: Sequence[str]) -> tuple[bytes | None, str]:
        """The cubin, or None where the text does not compile, and the log."""
        ...


def compile_cubin(code: str, arch: str = "sm_90", options: Sequence[str] = ()) -> CompiledKernel:
    """Compile a kernel, after the prelude, for an architecture; BackendError where it does not compile.

    The kernel's name in C is found in its text, which is named so in messages, and kept in a file with the log.
    """
    compiler = nvrtc()
    entry = _ENTRY.search(code)
    name = entry.group(1) if entry else "kernel"
    text = f'#line 1 "prelude.cuh"\n{prelude()}\n#line 1 "{name}.cu"\n{code}'
    cubin, log = compiler.compile(text, f"{name}.cu", [f"--gpu-architecture={arch}", *OPTIONS, *options])
    if cubin is None:
        raise _failure(name, arch, text, log, compiler.version)
    return _compiled(cubin, log, compiler.version)


@cache
def nvrtc() -> Nvrtc:
    """NVRTC as cuda-bindings calls it, else as CuPy does; BackendError with the package to install if neither can."""
    reasons = []
    for kind in (_Bindings, _CuPy):
        try:
            return kind()
        except Exception as error:  # noqa: BLE001 - the packages raise errors of their own where the library is missing
            reasons.append(f"{kind.package}: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
    raise BackendError(
        f"NVRTC, which compiles kernels for a GPU, cannot be used ({'; '.join(reasons)})",
        expected="cuda-bindings or CuPy, and the library itself",
        remedy=REMEDY,
    )


class _Bindings:
    """NVRTC through cuda-bindings, which finds it in the wheel or among the system's libraries."""

    package = "cuda.bindings"

    def __init__(self) -> None:
        self._library: Any = importlib.import_module("cuda.bindings.nvrtc")
        major, minor = self._done(self._library.nvrtcVersion())
        self.version = f"{major}.{minor}"

    def compile(self, text: str, name: str, options: Sequence[str]) -> tuple[bytes | None, str]:
        library = self._library
        (program,) = self._done(library.nvrtcCreateProgram(text.encode(), name.encode(), 0, [], []))
        try:
            status, *_ = library.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
            log = self._text(program, library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog)
            said = log.rstrip(b"\0").decode(errors="replace")
            if status != library.nvrtcResult.NVRTC_SUCCESS:
                return None, said or str(status)
            return self._text(program, library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN), said
        finally:
            library.nvrtcDestroyProgram(program)

    def _text(self, program: Any, size: Any, read: Any) -> bytes:
        count: int = self._done(size(program))[0]
        buffer = b" " * (count + 1)  # NVRTC writes into it, as its binding has it; one byte alone Python would share
        self._done(read(program, buffer))
        return buffer[:count]

    def _done(self, result: Any) -> Any:
        status, *values = result
        if status != self._library.nvrtcResult.NVRTC_SUCCESS:
            raise BackendError(f"NVRTC fails: {status}", remedy=REMEDY)
        return values


class _CuPy:
    """NVRTC through CuPy."""

    package = "cupy"

    def __init__(self) -> None:
        self._library: Any = importlib.import_module("cupy_backends.cuda.libs.nvrtc")
        major, minor = self._library.getVersion()
        self.version = f"{major}.{minor}"

    def compile(self, text: str, name: str, options: Sequence[str]) -> tuple[bytes | None, str]:
        library = self._library
        program = library.createProgram(text, name, (), ())
        try:
            try:
                library.compileProgram(program, tuple(options))
            except library.NVRTCError:
                return None, str(library.getProgramLog(program))
            return bytes(library.getCUBIN(program)), str(library.getProgramLog(program))
        finally:
            library.destroyProgram(program)


def _compiled(cubin: bytes, log: str, version: str) -> CompiledKernel:
    """A kernel with the figures that ptxas reports; BackendError where it reports none, so that no bound is a guess."""
    registers, frame, shared = _REGISTERS.search(log), _STACK.search(log), _SHARED.search(log)
    if registers is None or frame is None:
        raise BackendError(
            f"NVRTC {version} does not say how many registers a kernel takes", expected="NVRTC 13", remedy=REMEDY
        )
    stack, stores, loads = map(int, frame.groups())
    return CompiledKernel(
        cubin, int(registers.group(1)), stores + loads, stack, int(shared.group(1)) if shared else 0, log, version
    )


def _failure(name: str, arch: str, text: str, log: str, version: str) -> BackendError:
    folder = Path(tempfile.mkdtemp(prefix="eqsat-kernel-"))
    source, written = folder / f"{name}.cu", folder / f"{name}.log"
    source.write_text(text, encoding="utf-8")
    written.write_text(log, encoding="utf-8")
    said = next((line.strip() for line in log.splitlines() if "error" in line), log.strip()[:200])
    return BackendError(
        f"the kernel does not compile: {said}",
        where=name,
        expected=f"CUDA C++ that NVRTC {version} takes for {arch}",
        remedy=f"its source is in {source}, the compiler's log in {written}",
    )
