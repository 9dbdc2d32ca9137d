"""Compiled kernels kept by content: the prelude, the code, options, architecture and the compiler's version."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from eqsat.runtime.cuda.nvrtc import OPTIONS, Compiled, compile_cubin, nvrtc
from eqsat.runtime.cuda.prelude import prelude
from eqsat.runtime.cuda.store import Store, key_of


class Cubins:
    """Cubins in a store, compiled where they are missing; the same from any number of processes."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = Store() if store is None else store

    def get(self, code: str, arch: str = "sm_90", options: Sequence[str] = ()) -> Compiled:
        """The kernel of a text for an architecture; BackendError where it has to be compiled and cannot be."""
        key = self.key(code, arch, options)
        held = self.store.get(key)
        if held is not None:
            return _read(held)
        compiled = compile_cubin(code, arch, options)
        self.store.put(key, _written(compiled))
        return compiled

    def key(self, code: str, arch: str, options: Sequence[str] = ()) -> str:
        """What a kernel is kept under."""
        return key_of("cubin", prelude(), code, arch, nvrtc().version, *OPTIONS, *options)


def _written(compiled: Compiled) -> bytes:
    fields = asdict(compiled)
    del fields["cubin"]
    return json.dumps(fields).encode() + b"\n" + compiled.cubin


def _read(held: bytes) -> Compiled:
    head, _, cubin = held.partition(b"\n")
    return Compiled(cubin=cubin, **json.loads(head))
