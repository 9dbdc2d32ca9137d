"""The result for a model of PyTorch: called with tensors, it gives tensors."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from eqsat.pytorch.calling import Convention
from eqsat.report.result import Result


@dataclass(frozen=True, kw_only=True, repr=False)
class TorchResult(Result):
    """An optimised model of PyTorch with its report.

    It is called as the module was with its example inputs, and returns what the module does: tensors, nested alike. It
    is for inference: outputs carry no gradients. Weights that nothing changed share memory with the module's.
    """

    convention: Convention

    @classmethod
    def of(cls, result: Result, convention: Convention) -> TorchResult:
        """A result together with how its module is called."""
        parts = {f.name: getattr(result, f.name) for f in fields(Result)}
        return cls(**parts, convention=convention)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs of the module for these arguments; UsageError for a call of another form.

        Arguments that the result does not read are not passed on.
        """
        feeds = self.convention.feeds(args, kwargs)
        return self.convention.nested(self.run(**{name: feeds[name] for name in self.graph.inputs if name in feeds}))
