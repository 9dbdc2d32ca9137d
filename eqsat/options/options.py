"""The options of a run: one field each, from which keyword arguments, their checks, help and command line derive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from eqsat.errors import UsageError
from eqsat.options import checks, choices
from eqsat.options.costing import CostOptions
from eqsat.options.meanings import CALLS, Call, meaning_of
from eqsat.options.meanings import stated as _meaning
from eqsat.options.sizes import sizes_of

# A command line reads the options before it knows what to do: nothing heavy is imported here.
if TYPE_CHECKING:
    from concurrent.futures import Executor

    from eqsat.costs.table.table import CostTable
    from eqsat.language.sizes.buckets import Buckets, BucketsArgument
    from eqsat.options.sizes import SizesArgument
    from eqsat.report.report import Progress
    from eqsat.rewrites.rules.rule import Rule, Trust
    from eqsat.runtime.examples import OverSizes

#: What `rules` accepts: nothing (the library), a file of rules or their text, several of those, or the very rules.
RulesArgument: TypeAlias = "Sequence[Rule | str | Path] | str | Path | None"


@dataclass(frozen=True, kw_only=True)
class Options(CostOptions):
    """Every option of a run, checked when it is made; UsageError for one that is out of its domain.

    Fields hold options in one form, such as sizes with their weights and limits as numbers.
    """

    extractor: str = field(
        default="ilp",
        metadata=_meaning(
            checks.extractor,
            'the way to choose, "ilp", "greedy" or "backtracking"',
            since="explore",
            flag="--extractor",
            help="Way to choose among equal graphs.",
            choices=choices.extractors,
        ),
    )
    alpha: float | None = field(
        default=None,
        metadata=_meaning(
            checks.alpha,
            "how much dearer than the best a graph may be from which backtracking goes on; 1.05 if left out",
            since="explore",
            flag="--alpha",
            kind="number",
            help="Factor by which backtracking may exceed the best cost; 1.05 if left out.",
        ),
    )
    node_limit: int = field(
        default=20_000,
        metadata=_meaning(checks.count, "the most e-nodes", flag="--node-limit", kind="count", help="Most e-nodes."),
    )
    time_limit: float = field(
        default=30.0,
        metadata=_meaning(
            checks.seconds,
            "the most seconds of the call, but for reading the model; the report says what there was no time for",
            flag="--time-limit",
            kind="duration",
            help="Time limit of all but reading and writing.",
            pareto=60.0,
        ),
    )
    steps: int | None = field(
        default=None,
        metadata=_meaning(
            checks.steps,
            "the most counted steps (matches, rows, iterations of some microseconds each) in place of the time "
            "limit: two runs without measuring come to the same bytes, however fast the machine is",
            flag="--steps",
            kind="count",
            help="Limit of steps in place of the time limit: the same result on any machine.",
        ),
    )
    rules: RulesArgument = field(
        default=None,
        metadata=_meaning(
            checks.anything,
            "a file or a text of rules to check and add to the library's, or a sequence of Rule in place of them",
            flag="--rules",
            kind="files",
            help="File of rules to use besides the library's.",
        ),
    )
    trust: Trust = field(
        default="proved",
        metadata=_meaning(
            checks.trust,
            'the least that a rule has to be, shipped or given: "proved" for every size, or "bounded", true of all '
            "that was tried",
            flag="--trust",
            choices=choices.trusts,
            help="Least that a rule has to be: proved for every size, or bounded.",
        ),
    )
    finite_math: bool | None = field(
        default=None,
        metadata=_meaning(
            checks.switch_or_none,
            "whether rules may assume that no infinity or NaN occurs; left out, that inputs hold none and results "
            "do not overflow, unless the model asks (docs/adr/0010)",
            flag="--finite-math/--no-finite-math",
            kind="switch",
            help="Assume that no infinity or NaN occurs, or that any may; if left out, that inputs are finite.",
        ),
    )
    outputs: Sequence[str] | None = field(
        default=None,
        metadata=_meaning(
            checks.outputs,
            "the outputs to keep; all if left out",
            flag="--outputs",
            kind="names",
            help="Keep only these outputs.",
        ),
    )
    prune_inputs: bool = field(
        default=False,
        metadata=_meaning(
            checks.switch,
            "whether inputs that the result does not read leave its signature; else callers pass all of the original's",
            since="explore",
            flag="--prune-inputs",
            kind="flag",
            help="Leave out inputs that the result does not read.",
        ),
    )
    sizes: SizesArgument | None = field(
        default=None,
        metadata=_meaning(
            lambda _name, given: sizes_of(given),
            'the sizes that named dims are costed and measured at: one a name, several, such as {"batch": [1, 8, '
            "32]}, or several with weights; what the model does not accept gives way to the nearest size that it does",
            flag="--size",
            kind="sizes",
            help="Size of a named dim in costs and measurements: one or several.",
        ),
    )
    over_sizes: OverSizes = field(
        default="sum",
        metadata=_meaning(
            checks.over_sizes,
            '"sum" for the least weighted sum of costs over several sizes, or "worst" for the least share of the '
            "original's cost at the size where that is largest",
            since="explore",
            flag="--over-sizes",
            help="Minimise over several sizes the weighted sum of costs, or the worst share of the original's.",
            choices=choices.over_sizes,
        ),
    )
    buckets: BucketsArgument | None = field(
        default=None,
        metadata=_meaning(
            checks.buckets,
            'sizes such as {"batch": [1, 4, 8]}: a choice for each from one e-graph, as a `BucketedResult`, which '
            "picks the smallest bucket that holds its inputs",
            since="optimize",
            flag="--bucket",
            kind="buckets",
            help="Sizes of a named dim to choose for, each on its own; may be repeated for other dims.",
        ),
    )
    seed: int = field(
        default=0,
        metadata=_meaning(
            checks.whole,
            "the seed of the checks, the search and the timing",
            flag="--seed",
            kind="count",
            help="Seed of the checks, the search and the timing.",
        ),
    )
    opset: int | None = field(
        default=None,
        metadata=_meaning(
            checks.opset,
            "the opset to write, the model's own if left out",
            since="explore",
            flag="--opset",
            kind="count",
            help="Opset to write; the model's own if left out.",
        ),
    )
    max_nodes: int = field(
        default=5_000,
        metadata=_meaning(
            checks.count,
            "the most nodes of a graph that one e-graph is made of, equal blocks left out; a larger one is cut into "
            "parts, and searched again around the cuts (docs/adr/0055)",
            since="optimize",
            flag="--max-nodes",
            kind="count",
            help="Most nodes of one e-graph; larger graphs are optimised in parts.",
        ),
    )
    partition: str = field(
        default="flow",
        metadata=_meaning(
            checks.partitioner,
            'the way to cut such a graph, "flow" for the cuts that lose the fewest substitutions, or "balanced"',
            since="optimize",
            flag="--partition",
            help="Way to cut a graph that is too large for one e-graph.",
            choices=choices.partitioners,
        ),
    )
    executor: Executor | int | None = field(
        default=None,
        metadata=_meaning(
            checks.executor,
            "a concurrent.futures.Executor that optimises parts, such as that of a Dask client, or a number of "
            'processes, which a script starts below `if __name__ == "__main__":`; this process if left out',
            since="optimize",
            flag="--processes",
            kind="count",
            help="Processes that optimise the parts of such a graph.",
        ),
    )
    measure: bool = field(
        default=True,
        metadata=_meaning(
            checks.switch,
            "whether the finalists are timed against the original where the device's backend is here; the original "
            "is then kept unless the upper 95 % bound of new/old is below 1",
            since="optimize",
        ),
    )
    strict: bool = field(
        default=False,
        metadata=_meaning(
            checks.switch,
            "whether a failure is raised; else the original is the result, `report.failure` says what failed, and a "
            "region that is found wrong is first tried anew without the rules behind it",
            since="optimize",
        ),
    )
    cache: bool = field(
        default=True,
        metadata=_meaning(
            checks.switch,
            "whether the result of an equal run is found again, and this one kept for the next; the report says so "
            "(docs/adr/0034)",
            since="optimize",
            flag="--cache/--no-cache",
            kind="switch",
            help="Find the result of an equal run again, and keep this one for the next.",
        ),
    )
    portable: bool = field(
        default=False,
        metadata=_meaning(
            checks.switch,
            "whether to write ONNX's operators alone; else a result for ONNX Runtime's CPU may be written in "
            "operators of its own, of the domain com.microsoft, which other runtimes lack",
            since="explore",
            flag="--portable",
            kind="flag",
            help="Write ONNX's operators alone, also where ONNX Runtime has faster ones of its own.",
        ),
    )
    quantised: str = field(
        default="qdq",
        metadata=_meaning(
            checks.quantised,
            'the form of products on integers: "qdq", float ones between (de)quantisations, or "operators"',
            since="explore",
            flag="--quantised",
            help="Form to write operators on integers in.",
            choices=choices.forms,
        ),
    )
    table: CostTable | str | Path | None = field(
        default=None,
        metadata=_meaning(checks.table, "the table of measured costs, or its file; the user's own if left out"),
    )
    threads: int = field(
        default=1,
        metadata=_meaning(
            checks.threads,
            "the threads of the runtime",
            flag="--threads",
            kind="count",
            help="Threads of the measured runtime.",
        ),
    )
    progress: Callable[[Progress], None] | None = field(
        default=None,
        metadata=_meaning(checks.called, "a function that is called with a Progress while the search runs"),
    )
    should_stop: Callable[[], bool] | None = field(
        default=None, metadata=_meaning(checks.called, "a function whose True ends the search with the best so far")
    )

    def __post_init__(self) -> None:
        for one in fields(self):
            checked = meaning_of(one).check(one.name, getattr(self, one.name))
            object.__setattr__(self, one.name, checked)
        if self.cost is not None and self.objective is not None:
            raise UsageError(
                "cost and objective", expected="one of the two: a function stands in place of weights of terms"
            )
        checks.device_has_layouts(self.device, self.layouts)
        checks.extractor_reads_alpha(self.extractor, self.alpha)
        asked = self.asked_buckets
        if asked is not None and self.prune_inputs:
            raise UsageError(
                "buckets and prune_inputs", expected="one of the two: an input may be all that shows a bucket's sizes"
            )
        if both := sorted(asked.ends.keys() & self.asked_sizes.keys()) if asked else []:
            raise UsageError(
                f"buckets and sizes of {both[0]!r}", expected="one of the two: buckets are costed at their own"
            )

    @classmethod
    def of(cls, call: Call, given: Mapping[str, Any]) -> Options:
        """The options of a call from its keyword arguments; TypeError for one that the call does not take."""
        taken = {one.name: default_of(one, call) for one in options_of(call)}
        for name in given:
            if name not in taken:
                near = get_close_matches(name, taken, n=1)
                hint = f". Did you mean {near[0]!r}?" if near else ""
                raise TypeError(f"{call}() got an unexpected keyword argument {name!r}{hint}")
        return cls(**{**taken, **given})

    def opened_table(self) -> CostTable:
        """The table of measured costs, the one that was given or one that is closed when it is dropped."""
        return checks.opened_table(self.table)

    @property
    def asked_buckets(self) -> Buckets | None:
        """The buckets that were asked for."""
        return cast("Buckets | None", self.buckets)

    @property
    def asked_sizes(self) -> dict[str, dict[int, float]]:
        """The sizes that were asked for, each with its weight."""
        return sizes_of(self.sizes)


def options_of(call: Call) -> list[Field[Any]]:
    """The options that a call takes, in the order of its signature."""
    return [one for one in fields(Options) if CALLS.index(meaning_of(one).since) <= CALLS.index(call)]


def default_of(one: Field[Any], call: Call) -> Any:
    """The default of an option in a call."""
    assert one.default is not MISSING
    return meaning_of(one).defaults.get(call, one.default)
