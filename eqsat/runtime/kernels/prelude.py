"""The text that is compiled before every kernel."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def prelude() -> str:
    """Element types, accesses of several elements, reductions over threads, and functions that C++ lacks.

    In CUDA C++17, without headers.
    """
    return _text("prelude.cuh") + _text("functions.cuh")


def _text(name: str) -> str:
    return files("eqsat.runtime.kernels").joinpath(name).read_text(encoding="utf-8")
