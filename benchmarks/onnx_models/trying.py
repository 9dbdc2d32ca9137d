"""One random model, optimised in one of several ways, written, and compared with its original in ONNX Runtime."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto

from benchmarks.faults.watch import Bounds, Found
from benchmarks.fuzz import Settings
from benchmarks.onnx_models.drawing import OLDEST_OPSET, newest_opset, random_model
from benchmarks.onnx_models.judging import difference
from benchmarks.onnx_models.noise import beyond_promise
from benchmarks.onnx_models.sessions import Session
from eqsat.errors import EqsatError, ExportModelError

BOUNDS = Bounds(seconds=60.0)
#: E-nodes and seconds of one optimisation.
_NODES, _SECONDS = 300, 5.0
#: Runs of an original that differs from its result, for it may read memory that ONNX Runtime did not write.
_AGAIN = 5
#: The opset from which on a Reshape can ask for a dim of 0.
_ALLOWS_ZERO = 14
#: What ONNX Runtime says where an opset has no kernel for an element type.
_NO_KERNEL = re.compile(r"NOT_IMPLEMENTED|Could not find an implementation|Type Error: Type '.*' of input parameter")

Feeds = Sequence[tuple[Mapping[str, int], Mapping[str, Any]]]


@dataclass(frozen=True)
class Way:
    """How a model is optimised: `costs` is the seed of random costs; `opset` the one written; by the command line."""

    costs: int | None
    opset: int | None
    command: bool
    finite_math: bool | None

    def result(self, model: ModelProto, folder: Path) -> ModelProto | str:
        """The result as a model, or in words what kept it from being one."""
        return self._by_command(model, folder) if self.command else self._by_call(model)

    def _by_call(self, model: ModelProto) -> ModelProto | str:
        import eqsat

        cost = None if self.costs is None else Settings(self.costs).cost
        found = eqsat.optimize(
            model, measure=False, cost=cost, node_limit=_NODES, time_limit=_SECONDS, finite_math=self.finite_math
        )
        if found.report.failure:
            return f"failed: {found.report.failure}"
        str(found.report), found.report.json(), str(found.explain())
        return found.to_onnx(opset=self.opset)

    def _by_command(self, model: ModelProto, folder: Path) -> ModelProto | str:
        from eqsat.cli import run

        given, made = folder / "given.onnx", folder / "made.onnx"
        onnx.save(model, given)
        words = ["optimize", str(given), "-o", str(made), "--no-measure", "--node-limit", str(_NODES)]
        words += ["--time-limit", str(_SECONDS), *([] if self.finite_math is None else ["--no-finite-math"])]
        words += [] if self.opset is None else ["--opset", str(self.opset)]
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = run(words)
        if code:
            text = " ".join(said.getvalue().split())
            if self.opset is not None and code == 2 and "opset" in text:
                raise ExportModelError(text)
            return f"exit code {code}: {text[-600:]}"
        return onnx.load(made)


def way_of(seed: int, edges: str) -> Way:
    """How the model of a seed is optimised."""
    rng = np.random.default_rng([seed, 2])
    opset = int(rng.integers(OLDEST_OPSET, newest_opset() + 1)) if rng.random() < 0.2 else None
    command = bool(rng.random() < 0.06)
    costs = seed if rng.random() < 0.5 and not command else None
    return Way(costs, opset, command, False if edges == "all" else None)


def seed_of(number: int, seed: int) -> int:
    """The seed of one model of a campaign."""
    return seed * 1_000_000 + number


def attempt(number: int, seed: int, folder: Path) -> Found:
    """One model, optimised and compared at every size."""
    np.seterr(all="ignore")
    drawn = random_model(seed_of(number, seed))
    way = way_of(drawn.seed, drawn.edges)
    feeds = [(dict(sizes), feed) for sizes, feed in drawn.feeds()]
    return examined(drawn.model, feeds, way, folder)


def alone(number: int, seed: int, _folder: Path) -> Found:
    """The model of a number run in ONNX Runtime and not optimised: what that ends is no fault of eqsat."""
    drawn = random_model(seed_of(number, seed))
    expected(drawn.model, list(drawn.feeds()))
    return "runs", None


def expected(model: ModelProto, feeds: Feeds) -> list[list[Any] | None] | None:
    """What the model gives for each feed, None where it does not run; None where it is refused."""
    try:
        session = Session(model)
    except Exception:  # noqa: BLE001 - whatever ONNX Runtime refuses is no model
        return None
    return [_run(session, feed) for _, feed in feeds]


def _run(session: Session, feed: Mapping[str, Any]) -> list[Any] | None:
    try:
        return session.run(feed)
    except Exception:  # noqa: BLE001 - it does not run at these sizes
        return None


def examined(model: ModelProto, feeds: Feeds, way: Way, folder: Path) -> Found:
    """What came of a model, and what is wrong with its result."""
    before = model.SerializeToString(deterministic=True)
    old = expected(model, feeds)
    if old is None or all(o is None for o in old):
        return "refused by ONNX Runtime", None
    try:
        result = way.result(model, folder)
    except ExportModelError as error:
        return ("not in the opset", None) if way.opset is not None else ("not written", f"not written: {error}")
    except EqsatError as error:
        return "refused", f"refused: {type(error).__name__}: {error}"
    if isinstance(result, str):
        return "failed", result
    if model.SerializeToString(deterministic=True) != before:
        return "changed", "changed: the model that was given is another now"
    return _compared(model, feeds, way, old, result)


def _is_unpromised(model: ModelProto, feed: Mapping[str, Any], *, finite: bool) -> bool:
    """Whether nothing is promised of a model on some inputs; what cannot be shown is promised."""
    try:
        return beyond_promise(model, feed, finite=finite) is not None
    except Exception:  # noqa: BLE001 - inner values cannot be shown
        return False


def _hold_nothing(before: Sequence[Any], after: Sequence[Any]) -> bool:
    """Whether results differ in no element, but in the shapes of empty ones."""
    return all(
        np.size(a) == np.size(b) == 0 if np.shape(a) != np.shape(b) else np.array_equal(a, b)
        for a, b in zip(before, after, strict=True)
    )


def _compared(model: ModelProto, feeds: Feeds, way: Way, old: list[list[Any] | None], result: ModelProto) -> Found:
    names = [[v.name for v in m.graph.output] for m in (model, result)]
    if names[0] != names[1]:
        return "wrong", f"outputs: {names[0]} became {names[1]}"
    try:
        session = Session(result)
    except Exception as error:  # noqa: BLE001
        if way.opset is not None and _NO_KERNEL.search(str(error)):
            return "no kernel in the opset", None
        return "does not load", f"does not load: {error}"
    for (sizes, feed), before in zip(feeds, old, strict=True):
        if before is None:
            continue
        try:
            after = session.run(feed)
        except Exception as error:  # noqa: BLE001
            if way.opset is not None and way.opset < _ALLOWS_ZERO and 0 in sizes.values() and "Reshape" in str(error):
                continue  # no shape of that opset says which of two dims is 0
            if _is_unpromised(model, feed, finite=way.finite_math is None):
                continue
            return "does not run", f"does not run at {sizes}: {error}"
        words = difference(model, feed, before, after, finite=way.finite_math is None)
        if words is not None and way.opset is not None and way.opset < _ALLOWS_ZERO and _hold_nothing(before, after):
            continue  # as above: it runs, and another dim is 0
        if words is not None:
            for again in (_run(Session(model), feed) for _ in range(_AGAIN)):
                if again is None or difference(model, feed, before, again, finite=False) is not None:
                    return "the original gives this and that", None
            return "wrong", f"wrong at {sizes}: {words}"
    same = result.SerializeToString(deterministic=True) == model.SerializeToString(deterministic=True)
    return ("right, as it was" if same else "right, another model"), None
