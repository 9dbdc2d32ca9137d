"""Fingerprints of Python functions by their syntax trees, so that comments, docstrings and names of locals may change.

Evidence for a rule holds as long as the references, shape rules and conditions that give the rule its meaning compute
the same. Text would go stale by a better docstring; bytecode differs between versions of Python.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import linecache
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from types import CodeType, FunctionType
from typing import Any

#: Fields of syntax trees without effect on the values computed, or that some versions of Python lack.
_SILENT = {"kind", "type_comment", "type_params"}
_PACKAGE = __name__.partition(".")[0]


@cache
def fingerprint(function: Any) -> bytes:
    """A hash of a function and of all that it calls, of this package or of the function's own module.

    Global numbers and texts that it reads count too. An object with a `reference`, as a registered operator is, stands
    for that function, and comprehensions stand for their text.
    """
    digest = hashlib.blake2b(digest_size=12)
    home = getattr(getattr(function, "reference", function), "__module__", None)
    seen: set[tuple[str, str]] = set()
    pending = [function]
    while pending:
        one = pending.pop()
        one = getattr(one, "reference", one)
        if not isinstance(one, FunctionType) or not _is_followed(one, home):
            text = getattr(one, "source", one)  # comprehensions
            digest.update(repr(text).encode() if isinstance(text, int | float | str) else b"")
            continue
        if (one.__module__, one.__qualname__) in seen:
            continue
        seen.add((one.__module__, one.__qualname__))
        digest.update(syntax(one.__code__, one.__code__.co_filename).encode())
        closure = [c.cell_contents for c in one.__closure__ or ()]
        names = sorted(_names(one.__code__))
        pending += [one.__globals__[n] for n in names if n in one.__globals__] + closure
    return digest.digest()


def _is_followed(function: FunctionType, home: str | None) -> bool:
    return (function.__module__ or "").partition(".")[0] == _PACKAGE or function.__module__ == home


@cache
def syntax(code: CodeType, file: str) -> str:
    """The syntax tree of a function in a file as text, the same in every version of Python.

    Left out are comments, docstrings, decorators of the function itself and positions; locals that are no parameters
    are numbered. The bytecode stands for a function whose source is not at hand. The file is an argument because codes
    are equal whatever file they are of and whatever defaults their parameters have.
    """
    trees = _trees(code, file)
    if not trees:
        return _bytes(code)
    locals, numbers = _locals(code), dict[str, str]()
    return ";".join(_text(tree, locals, numbers) for tree in trees)


def _trees(code: CodeType, file: str) -> list[ast.AST]:
    """The definition of a function; for a lambda every one that begins in its line, since they cannot be told apart."""
    lines = linecache.getlines(file)
    first = code.co_firstlineno
    if code.co_name != "<lambda>":
        # To parse a function alone is several times cheaper than to parse its file.
        while first <= len(lines) and not lines[first - 1].lstrip().startswith(("def ", "async def ")):
            first += 1
        block = _block(lines, first)
        if first + len(block) > max((line for one in _codes(code) for _, _, line in one.co_lines() if line), default=0):
            with suppress(SyntaxError):
                return list(ast.parse(textwrap.dedent("".join(block))).body)
    kind = (ast.Lambda,) if code.co_name == "<lambda>" else (ast.FunctionDef, ast.AsyncFunctionDef)
    return [node for node in _functions(file) if isinstance(node, kind) and node.lineno == first]


def _block(lines: list[str], first: int) -> list[str]:
    """The lines of a definition that begins in a line, counted from 1: those that are indented, empty or comments."""
    if first > len(lines):
        return []
    column = len(lines[first - 1]) - len(lines[first - 1].lstrip())
    end = first
    while end < len(lines) and (
        not (text := lines[end].lstrip()) or text[0] in "#)]}" or len(lines[end]) - len(text) > column
    ):
        end += 1
    return lines[first - 1 : end]


@cache
def _functions(file: str) -> list[ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function of a file, none if the file is not Python."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return []
    kinds = (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef)
    return [node for node in ast.walk(tree) if isinstance(node, kinds)]


def _locals(code: CodeType) -> set[str]:
    """Names that a function and those within it assign, and that are no parameter, global or attribute of any."""
    codes = list(_codes(code))
    parameters = {name for one in codes for part in inspect.getargs(one) if part for name in _listed(part)}
    assigned = {name for one in codes for name in (*one.co_varnames, *one.co_cellvars)}
    return assigned - parameters - _names(code)


def _listed(part: str | list[str]) -> list[str]:
    return [part] if isinstance(part, str) else part


def _text(node: object, locals: set[str], numbers: dict[str, str], outermost: bool = True) -> str:
    """A tree as text; locals are numbered in the order in which they are met."""
    if isinstance(node, list):
        return f"[{' '.join([_text(one, locals, numbers, False) for one in node])}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.Name) and node.id in locals:
        return numbers.setdefault(node.id, f"local {len(numbers)}")
    if isinstance(node, ast.Constant):
        return f"{type(node.value).__name__} {node.value!r}"
    parts = [type(node).__name__]
    for field in node._fields:
        value = getattr(node, field, None)
        if field in _SILENT or value is None or value == [] or (outermost and field == "decorator_list"):
            continue
        inner = value[1:] if field == "body" and _is_documented(node) else value
        if isinstance(node, ast.JoinedStr):
            # Python 3.12.1 adds an empty text to some formats.
            inner = [part for part in value if not (isinstance(part, ast.Constant) and part.value == "")]
        parts.append(f"{field}={_text(inner, locals, numbers, False)}")
    return f"({' '.join(parts)})"


def _is_documented(node: ast.AST) -> bool:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None


def _bytes(code: CodeType) -> str:
    """A function typed at a prompt as text: its instructions, constants and names."""
    constants = [_bytes(c) if inspect.iscode(c) else repr(c) for c in code.co_consts]
    return f"{code.co_code.hex()} {constants} {code.co_names}"


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of every function within it."""
    yield code
    for constant in code.co_consts:
        if inspect.iscode(constant):
            yield from _codes(constant)


@cache
def _names(code: CodeType) -> set[str]:
    """The globals and attributes that a function, and those within it, read."""
    return {name for one in _codes(code) for name in one.co_names}
