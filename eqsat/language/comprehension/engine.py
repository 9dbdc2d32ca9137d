"""Comprehensions as functions of Python: defined from text, called with arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any

from eqsat.errors import ComprehensionNameError, ShapeError, UsageError, nearest
from eqsat.language.comprehension.calls import MAKERS
from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.comprehension.gradients.differences import check_by_differences
from eqsat.language.comprehension.gradients.given import GivenGradient, given_gradient
from eqsat.language.comprehension.gradients.gradient import gradient_of
from eqsat.language.comprehension.graphs.operators import operator_of
from eqsat.language.comprehension.graphs.reference import applied, check_given
from eqsat.language.comprehension.meaning.resolver import resolve
from eqsat.language.comprehension.pytorch import is_recorded, is_traced, recorded, traced
from eqsat.language.comprehension.text.parser import fault, parse
from eqsat.language.comprehension.text.printer import print_function
from eqsat.language.graphs.builder import Builder, Tensor


def comprehension(source: str, *, strict: bool = False) -> Comprehension:
    """The functions that a source defines in the language of tensor comprehensions (arXiv 1802.04730).

    Each is an attribute by its name, and called with arrays: of NumPy, or that speak DLPack, as those of PyTorch do.
    `strict` asks for a proof that no subscript passes its bounds, for every size; else those that sizes or elements
    decide are looked at in each call. ComprehensionError, with the line and a caret, for a source that means nothing,
    or that is not proved where it is to be.

    >>> import numpy as np
    >>> f = comprehension("def mv(float(M,K) A, float(K) x) -> (C) { C(i) +=! A(i,k) * x(k) }")
    >>> f.mv(np.eye(2, dtype=np.float32), np.array([3, 4], np.float32))
    array([3., 4.], dtype=float32)
    """
    return Comprehension(source, strict)


class Comprehension(Mapping[str, "DefinedFunction"]):
    """The functions of a source, by name; each is an attribute too."""

    def __init__(self, source: str, strict: bool = False) -> None:
        self.source = source
        self._functions: dict[str, DefinedFunction] = {}
        for function in parse(source):
            if function.name in self._functions:
                raise fault(
                    ComprehensionNameError,
                    f"{function.name} is defined twice",
                    source,
                    function.place,
                    expected="one definition of each name",
                )
            self._functions[function.name] = DefinedFunction(resolve(function, source), strict)

    def __getattr__(self, name: str) -> DefinedFunction:
        functions = self.__dict__.get("_functions", {})
        if name not in functions:
            raise AttributeError(f"no function {name!r}; {nearest(name, functions) or ', '.join(functions)}")
        found: DefinedFunction = functions[name]
        return found

    def __getitem__(self, name: str) -> DefinedFunction:
        return self._functions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._functions]

    def __repr__(self) -> str:
        return f"Comprehension({', '.join(self._functions)})"


class DefinedFunction(TensorFunction):
    """A function of a comprehension that takes arrays, or tensors of a graph, of which it becomes an operator."""

    #: The gradient that a caller gave it.
    given: GivenGradient | None = None

    @property
    def whole_source(self) -> str:
        """The text of the function, and of the gradient that a caller gave it, if any."""
        return self.source if self.given is None else f"{self.source}\n{self.given.function.source}"

    def __call__(self, /, *arguments: Any, out: Any = None, **named: Any) -> Any:
        """The results; ShapeError or UsageError for arguments that do not fit, BoundsError for indices that do not.

        In the reference of an operator the arithmetic `xp` goes first, as in `f(xp, A, x)`; tensors are what that
        computes with. Of tensors of a graph, the results are tensors of that graph. Of tensors of PyTorch in which it
        asks for gradients, it records `gradient`, as of any other function.
        """
        if is_traced():
            return traced(self.whole_source, "", arguments, named, out)
        if arguments and isinstance(getattr(arguments[0], "exact", None), bool):
            if out is not None:
                raise UsageError(f"{self.name} with out= in a reference", expected="results that it returns")
            given = self.by_name(arguments[1:], named)
            check_given(arguments[0], self, given)
            return applied(arguments[0], self, given)
        values = (*arguments, *named.values())
        for value in values:
            if isinstance(value, Tensor):
                return self._applied(value.graph, self.by_name(arguments, named))
        if out is None and is_recorded(values):
            return recorded(super().__call__, self.gradient, self.parameters, self.by_name(arguments, named))
        return super().__call__(*arguments, out=out, **named)

    def gradient(self, *names: str) -> DefinedFunction:
        """The gradient in parameters of floats, all of them by default, as a function of the same language.

        It takes the parameters and the gradient of each result of floats, and returns the gradient of each parameter:
        like any other function it is compiled, tuned, and an operator of graphs. Of numbers that are compared and equal
        one side counts, least and largest elements share among those that are equal. UsageError where there is none.

        >>> import numpy as np
        >>> f = comprehension("def mv(float(M,K) A, float(K) x) -> (C) { C(i) +=! A(i,k) * x(k) }").mv
        >>> f.gradient("x")(np.eye(2, dtype=np.float32), np.ones(2, np.float32), np.array([3, 4], np.float32))
        array([3., 4.], dtype=float32)
        """
        return gradient_function(self, names)

    def with_gradient(self, source: str | TensorFunction, *, arguments: Sequence[Any] | None = None) -> DefinedFunction:
        """The same function with a gradient of a caller's, which autograd and `gradient` take in place of one derived.

        The source defines one function, of the parameters and of the gradient of each result of floats, in this order,
        whose results are named `d_` and the parameter that each is the gradient of. It is held against differences at
        small draws of sizes and elements, or at the arguments that are passed. UsageError for one that is another
        function, for one of other parameters or results, and where differences tell nothing, as at kinks.

        >>> f = comprehension("def square(float(N) x) -> (y) { y(i) = x(i) * x(i) }").square
        >>> f = f.with_gradient("def back(float(N) x, float(N) up) -> (d_x) { d_x(i) = 2 * x(i) * up(i) }")
        >>> f.gradient("x").name
        'back'
        """
        gradient = source if isinstance(source, TensorFunction) else only_function(source)
        given = given_gradient(self, gradient)
        check_by_differences(self, given, arguments)
        return self._with(given)

    def _with(self, given: GivenGradient) -> DefinedFunction:
        made = copy(self)
        made.given = given
        return made

    def _applied(self, graph: Builder, given: Mapping[str, Any]) -> Any:
        """The tensors that the function makes in a graph."""
        operands: list[Any] = []
        passed = [place for place, name in enumerate(self.scope.updated, start=1) if name in given]
        for name in (*self.operands, *self.scope.updated[: max(passed, default=0)]):
            if name not in given:
                operands.append(None)  # its place says which one is passed
                continue
            value, dtype = given[name], self.types[name]
            if isinstance(value, Tensor) and value.type.dtype is not dtype:
                raise ShapeError(f"{value}", where=f"{self.name}, {name}", expected=dtype.value)
            operands.append(value if isinstance(value, Tensor) else self.argument(name, dtype, value))
        numbers = {name: int(self.argument(name, self.types[name], given[name])) for name in self.needs}
        return graph.apply(operator_of(self).name, *operands, **numbers)


def gradient_function(function: TensorFunction, names: Sequence[str] = ()) -> DefinedFunction:
    """The gradient of a function in parameters; UsageError where there is none."""
    given = function.given if isinstance(function, DefinedFunction) else None
    made = gradient_of(function, names) if given is None else given.part(names)
    return comprehension(print_function(made))[made.name]


def only_function(source: str) -> DefinedFunction:
    """The one function that a source defines; UsageError for what is no text, and for a source of several."""
    if not isinstance(source, str):
        raise UsageError(f"{source!r:.40} for a function", expected="the text of one, or a function of a comprehension")
    function, *others = comprehension(source).values()
    if others:
        names = ", ".join(one.name for one in (function, *others))
        raise UsageError(
            f"a source of {len(others) + 1} functions: {names}", expected="one function", remedy="pass that one alone"
        )
    return function


def whole_function(source: str) -> DefinedFunction:
    """The function of a `whole_source`: with the gradient that is defined behind it, if any, which was checked."""
    function, *gradients = comprehension(source).values()
    if not gradients:
        return function
    (gradient,) = gradients
    return function._with(given_gradient(function, gradient))


MAKERS.update(function=whole_function, gradient=gradient_function)
