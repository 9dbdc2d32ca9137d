"""Compiled kernels kept by content: the prelude, the code, options, architecture and the compiler's version."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

from eqsat.runtime.cuda.compiler.nvrtc import OPTIONS, CompiledKernel, compile_cubin, nvrtc
from eqsat.runtime.cuda.compiler.store import Store, key_of
from eqsat.runtime.kernels.prelude import prelude


class Cubins:
    """Cubins in a store, compiled where they are missing; the same from any number of processes."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = Store() if store is None else store
        self._made: dict[str, CompiledKernel] = {}

    def prepare(self, codes: Iterable[str], arch: str = "sm_90", options: Sequence[str] = ()) -> None:
        """Compile the texts that are missing at once, on all processors; BackendError where one does not compile."""
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # NVRTC compiles outside of Python's lock
            for _ in pool.map(lambda code: self.get(code, arch, options), dict.fromkeys(codes)):
                pass

    def get(self, code: str, arch: str = "sm_90", options: Sequence[str] = ()) -> CompiledKernel:
        """The kernel of a text for an architecture; BackendError where it has to be compiled and cannot be."""
        key = self.key(code, arch, options)
        if key not in self._made:
            payload = self.store.get(key)
            if payload is None:
                compiled = compile_cubin(code, arch, options)
                self.store.put(key, _written(compiled))
            self._made[key] = compiled if payload is None else _read(payload)
        return self._made[key]

    def key(self, code: str, arch: str, options: Sequence[str] = ()) -> str:
        """The key a kernel is stored under."""
        return key_of("cubin", prelude(), code, arch, nvrtc().version, *OPTIONS, *options)


def _written(compiled: CompiledKernel) -> bytes:
    fields = asdict(compiled)
    del fields["cubin"]
    return json.dumps(fields).encode() + b"\n" + compiled.cubin


def _read(payload: bytes) -> CompiledKernel:
    head, _, cubin = payload.partition(b"\n")
    return CompiledKernel(cubin=cubin, **json.loads(head))
