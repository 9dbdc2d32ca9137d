"""The log of a run: the seconds of its phases, its warnings, its failures and the work skipped."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from eqsat.report.report import Phase, Progress
from eqsat.system.collector import seldom_collecting


@dataclass
class Log:
    """Seconds of each phase, warnings for the user, and the phase a run is in.

    `failures` are errors that cost the run a finalist, or its result, `skipped` lists the work that there was no time
    for, `refuted` are rules that the run began anew without. `follow` is told of progress.
    """

    follow: Callable[[Progress], None] | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    refuted: tuple[str, ...] = ()
    current: Phase = "read"

    @contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """Time a phase and say that it began; the seconds of one inside of it are that one's alone."""
        self.current, inside = name, math.fsum(self.seconds.values())
        self.say(Progress(name))
        start = time.perf_counter()
        try:
            with seldom_collecting():
                yield
        finally:
            passed = time.perf_counter() - start - (math.fsum(self.seconds.values()) - inside)
            self.seconds[name] = self.seconds.get(name, 0.0) + passed

    def say(self, progress: Progress) -> None:
        """Tell of progress."""
        if self.follow is not None:
            self.follow(progress)

    def copy(self, *, anew: bool = False) -> Log:
        """A log that goes on from this one, which stays as it is; `anew`, without failures and what was skipped."""
        return replace(
            self,
            seconds=dict(self.seconds),
            warnings=list(self.warnings),
            failures=[] if anew else list(self.failures),
            skipped=[] if anew else list(self.skipped),
        )
