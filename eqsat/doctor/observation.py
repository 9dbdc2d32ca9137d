"""Findings of an examination: what was looked at, how it went, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

#: How a part of a step went. "dry" passed as far as it goes without a GPU; "absent" is something that is not installed
#: or not there; "skipped" was not looked at.
Status = Literal["passed", "dry", "absent", "skipped", "failed"]
#: From bad to good: the status of a step is the first that a part of it has.
ORDER: tuple[Status, ...] = ("failed", "absent", "skipped", "dry", "passed")


@dataclass(frozen=True)
class Observation:
    """One part of a step: its name, its status, what was seen, what to do, and figures by name."""

    part: str
    status: Status
    text: str = ""
    remedy: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Observation:
        """An observation that JSON has; TypeError or ValueError for what is none."""
        made = cls(**record)
        if made.status not in ORDER or not all(isinstance(one, str) for one in (made.part, made.text, made.remedy)):
            raise ValueError(f"{record!r} is no observation")
        return made

    def as_dict(self) -> dict[str, Any]:
        """The observation as JSON has it, without what is empty."""
        return {name: value for name, value in asdict(self).items() if value or name in ("part", "status")}


@dataclass(frozen=True)
class Examined:
    """A step that was examined, its observations, and the seconds that it took."""

    step: str
    observations: tuple[Observation, ...]
    seconds: float

    @property
    def status(self) -> Status:
        """The worst status of a part."""
        found = {one.status for one in self.observations}
        return next((status for status in ORDER if status in found), "skipped")

    @property
    def faults(self) -> list[Observation]:
        """The parts that failed, or that are not there."""
        return [one for one in self.observations if one.status in ("failed", "absent")]

    def as_dict(self) -> dict[str, Any]:
        """The step as JSON has it."""
        observations = [one.as_dict() for one in self.observations]
        return {
            "step": self.step,
            "status": self.status,
            "seconds": round(self.seconds, 2),
            "observations": observations,
        }

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Examined:
        """A step that JSON has."""
        observations = tuple(Observation.of(one) for one in record["observations"])
        return cls(str(record["step"]), observations, float(record["seconds"]))
