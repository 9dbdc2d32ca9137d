"""Errors of the judge of schedules."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat.errors import EqsatError

#: The values of the indices of a statement, by name.
Indices = Mapping[str, int]


class IllegalScheduleError(EqsatError):
    """An order of loops that computes something else than its statements in their order.

    `statements` are their numbers, `buffer` is the tensor at which they meet, and `instances` are values of their
    indices, of which one pair is at fault; the second one is absent where one statement alone is.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        statements: tuple[int, ...] = (),
        buffer: str = "",
        instances: tuple[Indices, ...] = (),
    ) -> None:
        super().__init__(what, where=where, expected="an order that keeps every dependence, and every instance once")
        self.statements, self.buffer, self.instances = statements, buffer, instances

    def at(self, where: str) -> IllegalScheduleError:
        """The same error with an outer location put in front."""
        place = f"{where}: {self.where}" if self.where else where
        return IllegalScheduleError(
            self.what, where=place, statements=self.statements, buffer=self.buffer, instances=self.instances
        )


class UndecidedScheduleError(EqsatError):
    """A tree of loops in whose form the judge does not find the statements again."""
