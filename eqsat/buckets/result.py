"""Results of `optimize` for buckets: one for each, run and written as one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.buckets.program import BucketProgram, may_pad
from eqsat.errors import UsageError
from eqsat.language.sizes.buckets import Bucket, Buckets
from eqsat.report.report import Report
from eqsat.report.result import Result
from eqsat.runtime.backend import Program, select
from eqsat.system.markup import html_block, html_listing

if TYPE_CHECKING:
    from onnx import ModelProto

    from eqsat.language.onnx.write.switch import SwitchCase

#: Backends that compile a program for each size of the inputs.
_BY_SIZE = frozenset({"cupy"})


@dataclass(frozen=True)
class BucketedResult(Result):
    """A result for each bucket of sizes, from one e-graph; as a Result it is that of the largest.

    `results` has the result of each bucket; those of equal choices share one graph. `run` picks the smallest bucket
    that holds the inputs; `save` and `to_onnx` write one model that chooses by size, `save_each` a file a choice.
    """

    buckets: Buckets = field(default_factory=lambda: Buckets({}))
    results: Mapping[Bucket, Result] = field(default_factory=dict)

    @property
    def choices(self) -> dict[tuple[Bucket, ...], Result]:
        """The results that differ, each with the buckets it is for."""
        of: dict[int, tuple[list[Bucket], Result]] = {}
        for bucket, result in self.results.items():
            of.setdefault(id(result.graph), ([], result))[0].append(bucket)
        return {tuple(buckets): result for buckets, result in of.values()}

    def run(self, **inputs: Any) -> dict[str, Any]:
        """The outputs by name for inputs by name, by the choice of the smallest bucket that holds them.

        BackendError for inputs that do not fit, and for sizes beyond the largest bucket.
        """
        return self._bucketed.run(inputs)

    @cached_property
    def _bucketed(self) -> BucketProgram:
        return self.compile()

    def compile(self, backend: str | None = None, pad: bool | None = None) -> BucketProgram:
        """The choices made ready to run, each once; nothing is compiled when they are called.

        With `pad`, inputs are padded with zeros to the end of their bucket and outputs cropped: by default where the
        backend compiles for each size ("cupy") and it is proved that padding changes no output. BackendError where it
        is asked for and may leak, naming the value that it leaks into.
        """
        name = select(self.backend if backend is None else backend).name
        graphs = {bucket: result.graph for bucket, result in self.results.items()}
        padded = may_pad(graphs, self.buckets, pad, name in _BY_SIZE)
        if name == "onnxruntime":
            one = self._session()
            programs: dict[Bucket, Program] = dict.fromkeys(self.results, one)
        else:
            known: dict[int, Program] = {}
            for result in self.results.values():
                if id(result.graph) not in known:
                    known[id(result.graph)] = result.compile(name)
            programs = {bucket: known[id(result.graph)] for bucket, result in self.results.items()}
        return BucketProgram(self.graph, self.buckets, programs, padded)

    def _session(self) -> Program:
        """One session for all choices, in which weights are held once."""
        from eqsat.runtime.onnxruntime.session import SessionProgram

        return SessionProgram.of(self.graph, self.to_onnx(), threads=self.threads)

    def to_onnx(
        self, path: str | Path | None = None, opset: int | None = None, quantised: str | None = None
    ) -> ModelProto:
        """One ONNX model that chooses by the sizes of its inputs; written to `path` too, if one is given."""
        if path is not None:
            self.save(path, opset, quantised)
        return super().to_onnx(None, opset, quantised) if self._is_one else self._model(opset, quantised)

    def save(self, path: str | Path, opset: int | None = None, quantised: str | None = None) -> None:
        """Write one ONNX file that chooses by the sizes of its inputs, its weights once."""
        if self._is_one:
            super().save(path, opset, quantised)
            return
        from eqsat.language.onnx.write import switch

        switch.save(self._cases(quantised), Path(path), opset or self.opset)

    def save_each(self, folder: str | Path, opset: int | None = None) -> list[Path]:
        """Write a file for each choice into a folder, named after the buckets it is for, and return their paths.

        UsageError for no folder.
        """
        target = Path(folder)
        if not target.is_dir():
            raise UsageError(f"no folder {str(folder)!r}", expected="one that exists", remedy="make it first")
        written: list[Path] = []
        for buckets, result in self.choices.items():
            path = target / f"{_named(buckets[-1])}.onnx"
            result.save(path, opset)
            written.append(path)
        return written

    def __repr__(self) -> str:
        lines = [f"{len(self.results)} buckets, {len(self.choices)} of them different choices"]
        for buckets, result in self.choices.items():
            reports = [self.results[bucket].report for bucket in buckets]
            ratios = [f"{r.cost_before / r.cost_after:.2f}x" for r in reports if r.cost_after]
            told = f", cost {', '.join(ratios)}" if ratios else ""
            lines.append(f"{'; '.join(map(_named, buckets))}: {result.report.kept}{told}")
        return "\n".join([*lines, "", f"the largest, {_named(list(self.results)[-1])}:", str(self.report)])

    def _repr_html_(self) -> str:
        rows = (
            ("; ".join(map(_named, buckets)), result.report.kept, *_gains(result.report))
            for buckets, result in self.choices.items()
        )
        columns = ("buckets", "kept", "predicted new/old", "measured new/old", "at most (95 %)")
        title = f"{len(self.results)} buckets"
        table = html_listing(title, "different choice", columns, rows, len(self.choices))
        return f"{table}{html_block(f'the largest, {_named(list(self.results)[-1])}:')}{self.report._repr_html_()}"

    def json(self) -> str:
        """The reports of all buckets as JSON text: a list with the sizes and the report of each."""
        rows = [{"bucket": dict(bucket), "report": r.report.to_json()} for bucket, r in self.results.items()]
        return json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @property
    def _is_one(self) -> bool:
        return len(self.choices) == 1

    def _model(self, opset: int | None, quantised: str | None) -> ModelProto:
        from eqsat.language.onnx.files.tensors import tensor_of
        from eqsat.language.onnx.write.switch import switched

        skeleton, tensors = switched(self._cases(quantised), opset or self.opset)
        skeleton.graph.initializer.extend(tensor_of(name, constant) for name, constant in tensors.items())
        return skeleton

    def _cases(self, quantised: str | None) -> list[SwitchCase]:
        from eqsat.language.onnx.write.switch import SwitchCase

        return [
            SwitchCase(result.written(quantised), [self.buckets.box(bucket) for bucket in buckets])
            for buckets, result in self.choices.items()
        ]


def _named(bucket: Bucket) -> str:
    """A bucket as a file is named after it.

    >>> _named((("batch", 4), ("length", 128)))
    'batch=4,length=128'
    """
    return ",".join(f"{name}={size}" for name, size in bucket)


def _gains(report: Report) -> Iterator[str]:
    """New over old of a report: the cost, the time, and the upper bound of that."""
    cost = report.cost_after / report.cost_before if report.cost_before else None
    for ratio in (cost, report.measured_ratio, report.measured_bound):
        yield "" if ratio is None else f"{ratio:.3f}"
