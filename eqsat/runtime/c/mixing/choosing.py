"""Regions that were measured to make a program the fastest, kept with its tuned kernels."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from eqsat.errors import BackendError
from eqsat.runtime.c.mixing.measuring import MeasuredMix, measured_mix
from eqsat.runtime.c.mixing.regions import RegionMaker, Window, mixed_program
from eqsat.runtime.c.program.kernels import ChoiceMaker, CKernel
from eqsat.runtime.c.toolchain import toolchain
from eqsat.runtime.kernels.view import View
from eqsat.runtime.onnxruntime.session import SessionBackend
from eqsat.runtime.programs.launches import Fallback, Launch
from eqsat.runtime.programs.lowering import Lowering
from eqsat.runtime.programs.program import KernelProgram
from eqsat.runtime.tuning.candidate import TuningCandidate
from eqsat.runtime.tuning.records import KernelEntry, KernelKey
from eqsat.runtime.tuning.store import KernelCache

#: The target of entries in the cache of tuned kernels, and the option that holds the ends of all regions.
_TARGET, _REGIONS = "c-regions", "regions"


def with_regions(
    lowering: Lowering,
    program: KernelProgram,
    choose: ChoiceMaker,
    threads: int | None,
    regions: Sequence[Window] | None = None,
    *,
    is_static: bool = True,
    tuned: bool = False,
) -> KernelProgram:
    """The program of a lowering with the regions that are given, or with those that are known to make it the fastest.

    A `tuned` program of which nothing is known is measured first. BackendError for given regions that no session
    computes, or where there can be none.
    """
    refused = refusal(lowering, is_static=is_static)
    if refused is None and regions != ():
        maker = RegionMaker(lowering, program)
        if regions is None:
            known = known_program(maker, choose, threads)
            if known is not None:
                return known
            regions = _measured(maker, choose, threads) if tuned else ()
        return mixed_program(maker, regions) if regions else program
    if regions:
        raise BackendError(
            f"no regions of ONNX Runtime: {refused}",
            where=program.name,
            expected="a graph or plan with known sizes that holds all values as they are stated, and onnxruntime",
            remedy="compile it without regions",
        )
    return program


def refusal(lowering: Lowering, *, is_static: bool) -> str | None:
    """The reason why a program of C can have no regions of ONNX Runtime; None where it can."""
    if not is_static:
        return "the sizes of dims are free, and regions are measured and kept for one size"
    if not all(held.state.is_plain for held in lowering.views):
        return "values are held in layouts or element types of their own"
    return SessionBackend().available()


def known_program(maker: RegionMaker, choose: ChoiceMaker, threads: int | None) -> KernelProgram | None:
    """The program with the regions that were measured to make it the fastest; None where nothing was measured here."""
    with KernelCache() as cache:
        options = cache.best(_key(maker.program, choose, threads))
    places = None if options is None else options.get(_REGIONS)
    if not isinstance(places, tuple) or len(places) % 2:
        return None
    ends = [place for place in places if isinstance(place, int)]
    regions = tuple(zip(ends[::2], ends[1::2], strict=True))
    try:
        return mixed_program(maker, regions) if regions else maker.program
    except BackendError:  # of another version
        return None


def _measured(maker: RegionMaker, choose: ChoiceMaker, threads: int | None) -> tuple[Window, ...]:
    """The regions of the fastest program, which are kept; none where it cannot be run on random numbers."""
    try:
        mix = measured_mix(maker, choose, threads)
    except BackendError:
        return ()
    keep(maker, mix, choose, threads)
    return mix.regions


def keep(maker: RegionMaker, mix: MeasuredMix, choose: ChoiceMaker, threads: int | None) -> None:
    """Keep the regions of a program with the tuned kernels of this machine, for programs that are made later."""
    places = tuple(place for region in mix.regions for place in region)
    seconds = {f"seconds of {name}": one for name, one in mix.seconds.items()}
    with KernelCache() as cache:
        entry = KernelEntry(TuningCandidate({_REGIONS: places, **seconds}), mix.seconds[mix.name])
        cache.put(_key(maker.program, choose, threads), entry)


def _key(program: KernelProgram, choose: ChoiceMaker, threads: int | None) -> KernelKey:
    """The key of the regions of a program: its launches by their kernels, choices and operands, and what runs them."""
    numbers: dict[str, int] = {}

    def placed(view: View) -> str:
        number = numbers.setdefault(view.buffer, len(numbers))
        return f"{number} {view.dtype.value} {view.offset} {view.shape} {view.strides}"

    lines = [
        f"{_work(launch, choose)}: {[placed(view) for view in (*launch.reads, *launch.writes)]}"
        for launch in program.launches
    ]
    lines += [f"output: {placed(view)}" for view in program.outputs.values()]
    text = hashlib.blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()
    shared = f"{len(program.launches)} launches; threads {threads or 'any'}"
    return KernelKey(text, shared, _TARGET, f"{toolchain().architecture}; onnxruntime {_version()}")


def _work(launch: Launch, choose: ChoiceMaker) -> str:
    if isinstance(launch.work, CKernel):
        return f"{launch.label} {launch.work.key} {choose(launch.work)}"
    return f"{launch.label} {launch.work.node.attrs}" if isinstance(launch.work, Fallback) else launch.label


def _version() -> str:
    """The version of ONNX Runtime, which is not loaded for it where it is installed under its own name."""
    try:
        return version("onnxruntime")
    except PackageNotFoundError:  # a build for other devices, or from source
        pass
    try:
        import onnxruntime
    except ImportError:
        return "that cannot be loaded"
    found: str = onnxruntime.__version__
    return found
