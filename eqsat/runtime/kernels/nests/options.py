"""Options of how a computation is mapped to loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar, get_args

from eqsat.errors import UsageError, nearest

Fusion = Literal["min", "max", "preserve3"]
#: Who decides which statements share loops, and in what order these run.
Scheduler = Literal["own", "isl"]
#: Pairs of elements that a caller's constraints are of, by what isl is to do with them.
ConstraintKind = Literal["validity", "coincidence", "proximity"]
#: Libraries with BLAS: the one that SciPy exports, and oneMKL.
Blas = Literal["scipy", "mkl"]
#: The most copies of a statement that unrolling makes.
MOST_UNROLLED = 4096
#: The most threads that share a loop.
_MOST_THREADS = 4096


@dataclass(frozen=True)
class MappingOptions:
    """The mapping of a computation to loops; every choice computes the same, but for the order of sums.

    `is_naive` has one loop per index and nothing else, as a person would write it. Otherwise a tile of `rows` rows
    and `vectors` vectors of `vector_bytes` bytes is computed in registers; `vector_axis` numbers the index that
    runs along vectors among all indices of a statement (-1 takes the best by strides). Tiles are walked down their
    rows first with `is_column_major`. `unroll` rounds of the innermost reduced loop are written out. Operands whose
    elements lie apart along vectors are copied beforehand with `pack`, and those that lie side by side too with
    `pack_near`. What vectors read of panels that follow each other in memory is fetched `prefetch` bytes ahead, if that
    is not 0. `fusion` says which statements share loops: none with "min", all that may with "max", and with
    "preserve3" those that keep three parallel indices, or all that they have; groups that share rows take
    `fused_rows` at a time. With `clusters`, of the names of targets, statements share loops with those of their cluster
    alone. `scheduler` "isl" has isl (the extra `poly`) compute what statements share loops, in a process of its own
    with a limit of time: along indices of their own, shifted, mirrored or skewed, unless `skewing` is False; where it
    has no answer, the loops are those of "own", with a warning. `constraints` are pairs of elements that isl takes in
    besides, by kind: the first one of "validity" comes before the second, those of "coincidence" are of one round of
    loops that have no order, and those of "proximity" are near each other. `S0`, `S1` … are the statements, with the
    indices of their targets: {"validity": "{ S1[i] -> S0[i] }"}. `library` leaves products of matrices to a library
    with BLAS, "scipy" or "mkl"; True
    means SciPy's. `threads` share the outermost loop. UsageError for values that mean nothing.
    """

    rows: int = 6
    vectors: int = 2
    vector_axis: int = -1
    vector_bytes: int = 32
    is_column_major: bool = True
    unroll: int = 2
    pack: bool = True
    pack_near: bool = False
    prefetch: int = 0
    fusion: Fusion = "max"
    fused_rows: int = 4
    clusters: tuple[tuple[str, ...], ...] = ()
    scheduler: Scheduler = "own"
    skewing: bool = True
    constraints: tuple[tuple[ConstraintKind, str], ...] = ()
    library: bool | Blas = False
    threads: int = 1
    is_naive: bool = False

    def __post_init__(self) -> None:
        check_counts(self, ("rows", "vectors", "vector_bytes", "unroll", "fused_rows", "threads"))
        check_counts(self, ("prefetch",), 0)
        check_counts(self, ("vector_axis",), -1)
        if self.threads > _MOST_THREADS:
            raise UsageError(
                f"threads = {self.threads}", where="mapping options", expected=f"at most {_MOST_THREADS} threads"
            )
        object.__setattr__(self, "clusters", clusters_of(self.clusters))
        object.__setattr__(self, "constraints", _constraints(self.constraints))
        if self.scheduler not in get_args(Scheduler):
            known = ", ".join(get_args(Scheduler))
            raise UsageError(f"scheduler = {self.scheduler!r}", where="mapping options", expected=known)
        if not isinstance(self.skewing, bool):
            raise UsageError(f"skewing = {self.skewing!r}", where="mapping options", expected="True or False")
        if self.constraints and self.scheduler != "isl":
            raise UsageError("constraints without isl", where="mapping options", expected='them with scheduler = "isl"')
        if self.vector_bytes not in (16, 32, 64):
            raise UsageError(f"vector_bytes = {self.vector_bytes}", where="mapping options", expected="16, 32 or 64")
        if self.library is True:
            object.__setattr__(self, "library", "scipy")
        elif self.library is not False and self.library not in get_args(Blas):
            known = ", ".join(["True", "False", *get_args(Blas)])
            raise UsageError(f"library = {self.library!r}", where="mapping options", expected=known)
        if self.fusion not in get_args(Fusion):
            raise UsageError(f"fusion = {self.fusion!r}", where="mapping options", expected=", ".join(get_args(Fusion)))
        if self.rows * self.vectors * self.unroll > MOST_UNROLLED:
            raise UsageError(
                f"{self.rows} rows of {self.vectors} vectors, unrolled {self.unroll} times",
                where="mapping options",
                expected=f"at most {MOST_UNROLLED} copies of a statement",
            )

    @property
    def blas(self) -> Blas | None:
        """The library that products of matrices are left to, if any."""
        return None if isinstance(self.library, bool) else self.library

    @classmethod
    def naive(cls) -> MappingOptions:
        """One loop per index."""
        return cls(is_naive=True, fusion="min")

    @staticmethod
    def of(given: MappingOptions | Mapping[str, Any] | str) -> MappingOptions:
        """Options from their names and values, or "naive" or "default"; UsageError for others.

        >>> MappingOptions.of({"rows": 6}).rows, MappingOptions.of("naive").is_naive
        (6, True)
        """
        return options_of(MappingOptions, given)

    def to_dict(self) -> dict[str, Any]:
        """The options that are not as by default, by name: what `of` takes."""
        return changed(self)


def clusters_of(given: Any) -> tuple[tuple[str, ...], ...]:
    """Clusters of names, of any sequences of them; UsageError for anything else, and for a name in two."""
    is_nested = isinstance(given, Sequence) and all(
        isinstance(one, Sequence) and not isinstance(one, str) and all(isinstance(name, str) for name in one)
        for one in given
    )
    names = [name for one in given for name in one] if is_nested else []
    if not is_nested or len(set(names)) < len(names):
        raise UsageError(
            f"clusters = {given!r}", where="mapping options", expected="lists of the names of targets, each in one"
        )
    return tuple(tuple(one) for one in given)


def _constraints(given: Any) -> tuple[tuple[ConstraintKind, str], ...]:
    """Constraints by kind, of a mapping or of pairs; UsageError for anything else."""
    kinds = get_args(ConstraintKind)
    pairs = list(given.items()) if isinstance(given, Mapping) else given
    is_nested = isinstance(pairs, Sequence) and all(
        isinstance(one, Sequence) and len(one) == 2 and one[0] in kinds and isinstance(one[1], str) for one in pairs
    )
    if not is_nested or len({one[0] for one in pairs}) < len(pairs):
        raise UsageError(
            f"constraints = {given!r}", where="mapping options", expected=f"relations of isl by {', '.join(kinds)}"
        )
    return tuple((one[0], one[1]) for one in pairs)


class _Options(Protocol):
    """A frozen dataclass of options, with values by default."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @classmethod
    def naive(cls) -> Self:
        """One loop per index."""
        ...


_Kind = TypeVar("_Kind", bound=_Options)


def options_of(kind: type[_Kind], given: _Kind | Mapping[str, Any] | str) -> _Kind:
    """Options of a kind from their names and values, or "naive" or "default"; UsageError for others."""
    if isinstance(given, kind):
        return given
    if given == "naive":
        return kind.naive()
    if given == "default":
        return kind()
    if not isinstance(given, Mapping):
        raise UsageError(f"mapping options {given!r}", expected="'naive', 'default', or values by name")
    known = [one.name for one in fields(kind)]
    for name in given:
        if name not in known:
            raise UsageError(f"mapping option {name!r}", expected=", ".join(known), remedy=nearest(str(name), known))
    return replace(kind(), **given)


def changed(options: _Options) -> dict[str, Any]:
    """The options that are not as by default, by name."""
    plain = asdict(type(options)())
    return {name: value for name, value in asdict(options).items() if value != plain[name]}


def check_counts(options: object, names: Sequence[str], least: int = 1) -> None:
    """UsageError for an option of these names that is no whole number from the least one on."""
    for name in names:
        value = getattr(options, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise UsageError(f"{name} = {value!r}", where="mapping options", expected=f"a whole number from {least} on")
