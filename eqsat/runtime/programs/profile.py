"""The profile of a program: a span for every launch, as a table, a Chrome trace and a picture."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from eqsat.errors import MissingExtraError, UsageError
from eqsat.runtime.programs.launches import Launch

#: Kinds of launches, each with its colour in the picture.
KINDS = {
    "generated": "#4c78a8",
    "matmul": "#f58518",
    "convolution": "#e45756",
    "attention": "#72b7b2",
    "normalisation": "#b279a2",
    "session": "#54a24b",
    "fallback": "#9d9d9d",
}


def moved_bytes(launch: Launch) -> int:
    """Bytes of the elements that a launch reads and writes, each once; repeated ones are counted as they lie."""
    return sum(view.dtype.itemsize * _distinct(view.shape, view.strides) for view in (*launch.reads, *launch.writes))


def _distinct(shape: Sequence[int], strides: Sequence[int]) -> int:
    return math.prod(size if stride or not size else 1 for size, stride in zip(shape, strides, strict=True))


@dataclass(frozen=True, slots=True)
class Span:
    """One launch as it ran: seconds from the start of its run, and the stream it ran on, counted from 0."""

    label: str
    kind: str
    start: float
    seconds: float
    nbytes: int = 0
    values: tuple[str, ...] = ()
    stream: int = 0


@dataclass
class Profile:
    """The spans of every run that was profiled, run by run.

    >>> p = Profile("m", [[Span("add", "generated", 0.0, 2e-6, nbytes=4000)]])
    >>> print(p)
    m: 1 launch, 2.0 us in 1 run
       share       us   GB/s  kind       launch
      100.0%      2.0      2  generated  add
    """

    name: str
    runs: list[list[Span]] = field(default_factory=list)

    @property
    def spans(self) -> tuple[Span, ...]:
        """The launches in order, each with its median time over all runs, one after the other on each stream.

        UsageError where nothing was run, or programs for several sizes.
        """
        if not self.runs:
            raise UsageError(
                f"no run of {self.name!r} was profiled",
                expected="at least one",
                remedy="run the program within `with program.profile() as p:`",
            )
        if len({tuple(span.label for span in run) for run in self.runs}) > 1:
            raise UsageError(
                f"runs of {self.name!r} of several sizes were profiled together",
                expected="runs that make the same launches",
                remedy="profile inputs of one size at a time",
            )
        return tuple(self._medians())

    @property
    def seconds(self) -> float:
        """The time of all launches together, medians over the runs."""
        return sum(span.seconds for span in self.spans)

    def _medians(self) -> Iterator[Span]:
        for same in zip(*self.runs, strict=True):
            start, seconds = (median(getattr(span, field) for span in same) for field in ("start", "seconds"))
            yield replace(same[0], start=start, seconds=seconds)

    def __str__(self) -> str:
        spans, total = self.spans, self.seconds
        plural = "es" if len(spans) != 1 else ""
        runs = f"{len(self.runs)} run{'s' if len(self.runs) != 1 else ''}"
        lines = [
            f"{self.name}: {len(spans)} launch{plural}, {total * 1e6:.1f} us in {runs}",
            f"{'share':>8} {'us':>8} {'GB/s':>6}  {'kind':<9}  launch",
        ]
        for span in sorted(spans, key=lambda s: -s.seconds):
            share = span.seconds / total if total else 0.0
            rate = span.nbytes / span.seconds / 1e9 if span.seconds else 0.0
            named = span.label or ", ".join(span.values)
            lines.append(f"{share:>8.1%} {span.seconds * 1e6:>8.1f} {rate:>6.0f}  {span.kind:<9}  {named}")
        return "\n".join(lines)

    def chrome_trace(self, path: str | Path) -> None:
        """Write all runs as Chrome-trace JSON, for chrome://tracing or Perfetto: a process a run, a row a stream."""
        events: list[dict[str, object]] = []
        for index, spans in enumerate(self.runs):
            head = {"ph": "M", "pid": index, "tid": 0}
            events.append({**head, "name": "process_name", "args": {"name": f"{self.name}, run {index + 1}"}})
            events += [_event(span, index) for span in spans]
        text = json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})
        Path(path).write_text(text, encoding="utf-8")

    def picture(self, path: str | Path) -> None:
        """Draw the timeline of medians to a file of the format in its suffix; MissingExtraError without matplotlib."""
        if find_spec("matplotlib") is None:
            raise MissingExtraError(
                "a picture of a timeline needs matplotlib",
                expected="the extra [plot]",
                remedy="pip install 'eqsat[plot]'",
            )
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch

        spans = self.spans
        streams = max(span.stream for span in spans) + 1 if spans else 1
        figure = Figure(figsize=(12, 1.6 + 0.6 * streams), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        for span in spans:
            bar = [(span.start * 1e6, span.seconds * 1e6)]
            axes.broken_barh(
                bar, (span.stream - 0.4, 0.8), facecolors=KINDS[span.kind], edgecolor="white", linewidth=0.3
            )
        axes.set_yticks(range(streams), [f"stream {stream}" for stream in range(streams)])
        axes.set_xlabel("µs")
        axes.set_title(f"{self.name}: {len(spans)} launches, {self.seconds * 1e6:.1f} µs")
        used = [kind for kind in KINDS if any(span.kind == kind for span in spans)]
        handles = [Patch(color=KINDS[kind], label=kind) for kind in used]
        axes.legend(handles=handles, ncols=len(KINDS), loc="upper center", bbox_to_anchor=(0.5, -0.35), frameon=False)
        figure.savefig(path)


def _event(span: Span, run: int) -> dict[str, object]:
    return {
        "name": span.label or ", ".join(span.values),
        "cat": span.kind,
        "ph": "X",
        "ts": span.start * 1e6,
        "dur": span.seconds * 1e6,
        "pid": run,
        "tid": span.stream,
        "args": {"values": list(span.values), "bytes": span.nbytes},
    }
