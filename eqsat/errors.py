"""One exception tree; every message says what went wrong, where, what was expected and what to do."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Characters that a terminal obeys and does not show: controls but tabs and line ends, and what turns the direction of
#: text around.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""The text with characters that a terminal obeys as escapes of Python, which are those of JSON beyond ASCII.

    >>> print(printable("a\x1b[31m\r\nb"))
    a\x1b[31m\x0d
    b
    """
    return _OBEYED.sub(lambda match: _escape(ord(match[0])), text)


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x7F else f"\\u{code:04x}"


class EqsatError(Exception):
    """An error a user can act on.

    `what` is the fault, `where` the file, node or value, `expected` the rule that was broken, `remedy` what to do.

    >>> print(EqsatError("no such output 'y'", where="m.onnx", expected="one of: z", remedy="pass outputs=['z']"))
    m.onnx: no such output 'y'
      expected one of: z
      pass outputs=['z']
    """

    def __init__(self, what: str, *, where: str = "", expected: str = "", remedy: str = "") -> None:
        what, where, expected, remedy = map(printable, (what, where, expected, remedy))
        self.what, self.where, self.expected, self.remedy = what, where, expected, remedy
        lines = [f"{where}: {what}" if where else what]
        if expected:
            lines.append(f"  expected {expected}")
        if remedy:
            lines.append(f"  {remedy}")
        super().__init__("\n".join(lines))

    def at(self, where: str) -> EqsatError:
        """The same error with an outer location put in front, for example the file of a node."""
        place = f"{where}: {self.where}" if self.where else where
        return type(self)(self.what, where=place, expected=self.expected, remedy=self.remedy)


class GraphError(EqsatError):
    """A graph that is not well formed: cycles, duplicate or missing names, wrong arity."""


class ShapeError(GraphError):
    """Operand shapes or dtypes that an operator does not accept."""


class DeclarationError(EqsatError):
    """An operator's declaration that is not well formed, or that its own reference contradicts."""


class ImportModelError(EqsatError):
    """A model file that cannot be read as ONNX."""


class ExportModelError(EqsatError):
    """A model that cannot be written."""


class ComprehensionError(EqsatError):
    """A tensor comprehension that cannot be used; the subclasses say what is wrong with it."""


class ComprehensionSyntaxError(ComprehensionError):
    """A source that does not follow the grammar of comprehensions."""


class ComprehensionNameError(ComprehensionError):
    """A name in a comprehension that means nothing there, or two things."""


class ComprehensionTypeError(ComprehensionError):
    """Element types in a comprehension that do not go together, or an operator or function on the wrong kind."""


class RangeError(ComprehensionError):
    """An index of a comprehension whose range does not follow from what it subscripts."""


class BoundsError(ComprehensionError):
    """A subscript of a comprehension that passes the bounds of its tensor."""


class UpdateError(ComprehensionError):
    """A statement of a comprehension that does not define each element once, or reads what it overwrites."""


class RuleError(EqsatError):
    """A rule that does not parse, type or load."""


class UnsoundRuleError(RuleError):
    """A rule that united two tensors of different type, or that is refuted; `rules` names it where it fired."""

    def __init__(
        self, what: str, *, where: str = "", expected: str = "", remedy: str = "", rules: tuple[str, ...] = ()
    ) -> None:
        super().__init__(what, where=where, expected=expected, remedy=remedy)
        self.rules = rules


class ExtractionError(EqsatError):
    """An extraction problem that is malformed or has no acyclic solution."""


class CostError(EqsatError):
    """A cost table or cost model that cannot be used."""


class BackendError(EqsatError):
    """A backend that is missing or refuses its input."""


class CertificateError(EqsatError):
    """A result that differs from its original.

    `pairs` are the values that were claimed to be equal, each of the result with one of the original, where it is known
    which of them are not; `rules` names the rules that the claims rest on.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        expected: str = "",
        remedy: str = "",
        pairs: tuple[tuple[str, str], ...] = (),
        rules: tuple[str, ...] = (),
    ) -> None:
        super().__init__(what, where=where, expected=expected, remedy=remedy)
        self.pairs, self.rules = pairs, rules


class UncheckedError(CertificateError):
    """A result that could not be checked: no random data decides it, or its tensors are too large to compute here."""


class UsageError(EqsatError):
    """An argument outside its domain."""


class PluginError(EqsatError):
    """An entry of another package that cannot be used: a device, an extractor or a backend."""


class MissingExtraError(EqsatError, ImportError):
    """A part of eqsat that needs a package which is not installed."""


#: The note on exceptions that a function of the caller's raised.
CALLERS_NOTE = "raised by a function that the caller passed"


def nearest(given: object, known: Iterable[str]) -> str:
    """A question after the known name that is most like one that is not known; empty if none is.

    >>> nearest("onxruntime-cpu", ["onnxruntime-cpu", "cuda"]), nearest("magic", ["ilp", "greedy"])
    ("did you mean 'onnxruntime-cpu'?", '')
    """
    names = {name.lower(): name for name in known}
    close = get_close_matches(given.lower(), names, n=1) if isinstance(given, str) else []
    return f"did you mean {names[close[0]]!r}?" if close else ""


def first_line(error: BaseException) -> str:
    """The message of an error of another library in one line; its type if it has none.

    >>> first_line(RuntimeError("no room\\nat all")), first_line(KeyError())
    ('no room', 'KeyError')
    """
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
