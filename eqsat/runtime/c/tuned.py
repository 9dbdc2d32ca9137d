"""Kernels of comprehensions with the fastest options known, and the search for these."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from statistics import median
from typing import Any

from eqsat.errors import UsageError
from eqsat.language.comprehension.calls import MAKERS
from eqsat.language.comprehension.engine import Comprehension, comprehension
from eqsat.language.comprehension.extents.free import check_free, holds_at, with_free
from eqsat.language.comprehension.extents.ranges import Inferred
from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.terms import Array
from eqsat.language.terms.dims import Sym
from eqsat.runtime.c.blas import blas_names, is_callable, measured_on
from eqsat.runtime.c.kernel import CompiledFunction, ComprehensionKernel, compiled, computation_of
from eqsat.runtime.c.toolchain import toolchain
from eqsat.runtime.kernels.nests.extents import LONGEST
from eqsat.runtime.kernels.nests.options import MappingOptions
from eqsat.runtime.threads import available_processors
from eqsat.runtime.tuning.agreement import agrees
from eqsat.runtime.tuning.candidate import CandidateError, TuningCandidate
from eqsat.runtime.tuning.config import TunerConfig
from eqsat.runtime.tuning.progress import tuning_bar
from eqsat.runtime.tuning.records import KernelEntry, KernelKey
from eqsat.runtime.tuning.search import SearchKind, search_of
from eqsat.runtime.tuning.space import OptionSpace
from eqsat.runtime.tuning.store import KernelCache
from eqsat.runtime.tuning.tuner import Tuned, tune
from eqsat.system.extras import is_installed

#: A function, a source of one, or the functions of a source with one.
FunctionLike = TensorFunction | Comprehension | str
Options = MappingOptions | Mapping[str, Any] | str
#: A measurement takes so many seconds, in calls of at least and at most so many.
_MEASURED_SECONDS, _FEWEST_CALLS, _MOST_CALLS = 5e-3, 3, 50
#: Accumulators of a tile at most; more do not fit into the registers of any processor.
_MOST_REGISTERS = 32


def kernel(
    function: FunctionLike, options: Options = "fastest", *, free: str | Sequence[str] = ()
) -> ComprehensionKernel:
    """A function of a comprehension compiled to C for the shapes that it is called with.

    The sizes that `free` names, such as that of a batch, stay arguments of what is compiled: one kernel serves all of
    their values. Calls in which an extent is 0 get one of their own.

    `options` are MappingOptions, their names and values, "naive", "default", or "fastest": those that `autotune` found
    for the shapes on this processor, or the default ones. `clusters` among them may be a function of a caller's, from
    the targets of all statements to lists of those that may share loops. UsageError for unknown options
    and sizes that cannot stay free, BackendError in a call where there is no compiler or the function has no C.

    >>> import numpy as np
    >>> double = kernel("def double(float(N) x) -> (y) { y(i) = 2 * x(i) }")
    >>> double(np.arange(3, dtype=np.float32))
    array([0., 2., 4.], dtype=float32)
    """
    if isinstance(options, str) and options == "fastest":
        return ComprehensionKernel(function_of(function), fastest_options, options, free)
    found = function_of(function)
    chosen = options_for(found, options)
    return ComprehensionKernel(found, lambda *_: chosen, chosen.to_dict(), free)


def kept_kernel(function: TensorFunction, text: str) -> ComprehensionKernel:
    """The kernel of a function, or of its gradient, with the options and free sizes that a graph of PyTorch keeps."""
    kept = json.loads(text)
    return kernel(function, kept["options"], free=[name for name in kept["free"] if name in function.scope.sizes])


MAKERS["kernel"] = kept_kernel


def with_clusters(function: TensorFunction, options: Any) -> Any:
    """Options by name whose clusters, where they are a function of a caller's, are asked for the targets."""
    if isinstance(options, Mapping) and callable(options.get("clusters")):
        targets = list(dict.fromkeys(one.statement.target for one in function.scope.statements))
        return {**options, "clusters": options["clusters"](targets)}
    return options


def options_for(function: TensorFunction, options: Options) -> MappingOptions:
    """Options for a function, whose clusters may be a function of its targets; UsageError for others."""
    return MappingOptions.of(with_clusters(function, options))


def autotune(
    function: FunctionLike,
    /,
    *arguments: Any,
    seconds: float = 30.0,
    config: TunerConfig | None = None,
    kernel_threads: int | None = None,
    progress: bool = True,
    free: str | Sequence[str] = (),
    search: SearchKind = "genetic",
    options: Mapping[str, Any] | None = None,
    **named: Any,
) -> Tuned[CompiledFunction]:
    """Search for the fastest options of a function at the shapes of arguments, and keep them for `kernel`.

    With `free` sizes kernels are those that serve all of their values: measured at the shapes of the arguments, and
    kept for `kernel` with the same free sizes.

    The search is "genetic" or "random", takes `seconds` seconds at most, and begins with the default options and the
    fastest known. What `options` state, such as clusters, constraints or no skewing, all candidates have. Candidates
    whose results are not those of the default ones, but for rounding, are dropped. Ctrl-C ends it with the best so far.
    UsageError for options that are not by name, CandidateError where nothing could be measured. `kernel_threads` are
    those that a kernel may use, all cores unless given.
    """
    found = function_of(function)
    inferred, tensors = found.bind(arguments, named)
    given = frozenset(name for name in found.scope.updated if name in tensors)
    opened = opened_at(found, inferred, free)
    wanted = compiled(found, opened, given, MappingOptions()).at(inferred).run(tensors)

    def build(candidate: TuningCandidate) -> CompiledFunction:
        made = compiled(found, opened, given, MappingOptions.of(dict(candidate))).at(inferred)
        if not all(agrees(one, other) for one, other in zip(made.run(tensors), wanted, strict=True)):
            raise CandidateError("other results than with the default options")
        return made

    if options is not None and not isinstance(options, Mapping):
        expected = "options by name, which all candidates have"
        raise UsageError(f"options = {options!r}", where="autotune", expected=expected)
    stated = options_for(found, options or {})
    fixed = {name: getattr(stated, name) for name in options or {}}
    space = space_of(found, opened, given, kernel_threads or available_processors(), fixed)
    # One core is left to what is measured.
    compilers = max(available_processors() - 1, 1)
    config = config or TunerConfig(generations=50, population=24, elites=4, threads=compilers)
    plain = TuningCandidate({**{name: getattr(MappingOptions(), name) for name in space.options}, **fixed})
    with KernelCache() as cache:
        key = key_of_kernel(found, opened)
        known = _within(space, cache.best(key))
        reference = plain if known is None else known
        strategy = search_of(search, space, config, (plain, reference))
        with tuning_bar() if progress else nullcontext() as follow:
            result = tune(
                space,
                strategy,
                build,
                lambda one: _seconds(one, tensors),
                seconds=min(seconds, config.seconds),
                threads=config.threads,
                reference=reference,
                progress=follow,
            )
        cache.put(key, KernelEntry(result.candidate, result.seconds))
    return result


def function_of(given: FunctionLike) -> TensorFunction:
    """The one function that is meant; UsageError for a source of several."""
    if isinstance(given, TensorFunction):
        return given
    functions = comprehension(given) if isinstance(given, str) else given
    if len(functions) != 1:
        raise UsageError(
            f"a comprehension of {len(functions)} functions",
            expected="one function",
            remedy=f"name it: .{next(iter(functions), 'f')}",
        )
    return next(iter(functions.values()))


def opened_at(function: TensorFunction, inferred: Inferred, free: str | Sequence[str]) -> Inferred:
    """The ranges and shapes of a call with sizes left free; UsageError where they cannot, or an extent is 0."""
    names = check_free(function, free)
    opened = with_free(function, inferred, names) if names else inferred
    if not holds_at(opened, inferred, names, LONGEST):
        raise UsageError(
            f"an extent of 0, or above {LONGEST}",
            where=f"{function.name} with {', '.join(names)} free",
            expected="sizes of which code for all sizes holds",
            remedy="leave them out of free for these arguments",
        )
    return opened


def key_of_kernel(function: TensorFunction, inferred: Inferred) -> KernelKey:
    """The key of a function at shapes on this processor: the same under other names.

    Of sizes that are free it has which these are, and no value.
    """
    free = [size for size in function.scope.sizes if isinstance(inferred.known[size], Sym)]
    numbers = {Sym.named(size): f"?{number}" for number, size in enumerate(free)}
    shapes = [
        f"[{', '.join(numbers.get(dim, str(dim)) if isinstance(dim, Sym) else str(dim) for dim in dims)}]"
        for dims in (inferred.shapes[one.name] for one in function.scope.function.parameters)
    ]
    known = [str(inferred.known[name]) for name in function.needs]
    return KernelKey(function.canonical, " ".join([*shapes, *known]), "c", measured_on())


def _within(space: OptionSpace, known: TuningCandidate | None) -> TuningCandidate | None:
    """The fastest known options as a candidate of a space; None where they are none of it, as those of a caller's."""
    if known is None:
        return None
    plain = MappingOptions()
    rest = {name: value for name, value in known.items() if name not in space.options}
    if any(not hasattr(plain, name) or value != getattr(plain, name) for name, value in rest.items()):
        return None
    candidate = TuningCandidate({name: known.get(name, getattr(plain, name)) for name in space.options})
    return candidate if space.allows(candidate) else None


def space_of(
    function: TensorFunction,
    inferred: Inferred,
    given: frozenset[str],
    threads: int,
    fixed: Mapping[str, Any] | None = None,
) -> OptionSpace:
    """The options that are searched for a function at shapes; those that a caller fixes have one value."""
    computation = computation_of(function, inferred, tuple(given))
    most_axes = max((len(one.axes) for one in computation.statements), default=0)
    shares = len(computation.statements) > 1
    widths = tuple(size for size in (16, 32, 64) if size <= max(toolchain().vector_bytes, 16))
    options: dict[str, tuple[Any, ...]] = {
        "rows": (1, 2, 3, 4, 5, 6, 8, 12),
        "vectors": (1, 2, 3, 4, 6, 8),
        "vector_axis": (-1, *range(min(most_axes, 8))),
        "vector_bytes": widths,
        "is_column_major": (True, False),
        "unroll": (1, 2, 4, 8, 16),
        "pack": (True, False),
        "pack_near": (False, True),
        "fusion": ("max", "min", "preserve3") if shares else ("max",),
        "fused_rows": (4, 1, 2, 8, 16) if shares else (4,),
        "library": (False, *blas_names()),
        "threads": (1, threads) if threads > 1 and toolchain().has_threads else (1,),
        "scheduler": ("own", "isl") if shares and is_installed("islpy") else ("own",),
        "skewing": (True, False) if shares and is_installed("islpy") else (True,),
    }
    stated = fixed or {}
    options |= {name: (value,) for name, value in stated.items()}
    return OptionSpace(options, lambda candidate: _is_sensible(candidate, stated))


def _is_sensible(candidate: TuningCandidate, fixed: Mapping[str, Any]) -> bool:
    """False for tiles that no registers hold, and for choices that change nothing; a caller's are not judged."""
    rows, vectors = candidate["rows"], candidate["vectors"]
    assert isinstance(rows, int) and isinstance(vectors, int)
    if rows * vectors > _MOST_REGISTERS and not {"rows", "vectors"} <= fixed.keys():
        return False
    is_unused = {
        "fused_rows": candidate["fusion"] == "min" and candidate["fused_rows"] != MappingOptions.fused_rows,
        "scheduler": candidate["fusion"] == "min" and candidate["scheduler"] == "isl",
        "skewing": candidate["scheduler"] == "own" and not candidate["skewing"],
    }
    return not any(unused and name not in fixed for name, unused in is_unused.items())


def fastest_options(function: TensorFunction, inferred: Inferred) -> MappingOptions:
    """The options that were found fastest on this processor; the default ones where none are known."""
    with KernelCache() as cache:
        known = cache.best(key_of_kernel(function, inferred))
    try:
        options = MappingOptions() if known is None else MappingOptions.of(dict(known))
    except UsageError:  # options of another version
        return MappingOptions()
    targets = {one.statement.target for one in function.scope.statements}
    if not targets.issuperset(name for cluster in options.clusters or () for name in cluster):
        options = replace(options, clusters=())  # of the same function by other names
    return options if is_callable(options.blas) else MappingOptions()


def _seconds(one: CompiledFunction, tensors: Mapping[str, Array]) -> float:
    """The median of several calls."""
    call, times = one.bound(tensors), list[float]()
    while len(times) < _FEWEST_CALLS or (sum(times) < _MEASURED_SECONDS and len(times) < _MOST_CALLS):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return median(times)
