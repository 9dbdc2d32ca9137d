"""The adapter on egglog: program text in, rows out. Nothing else in eqsat imports egglog."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import weakref
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.machinery import PathFinder
from typing import Any

from eqsat.errors import EqsatError, UsageError
from eqsat.system.deadline import check
from eqsat.system.files import lent

#: Rows of one table handed to egglog between two looks at the deadline, and the fewest that are worth a file.
_CHUNK, _FEW = 1024, 4
#: Commands handed to egglog at once; parsing is quadratic in the length of a text.
_AT_ONCE = 25
#: The sort of tensors.
_SORT = "T"
#: The ruleset that makes e-nodes, marks and equalities of the rows handed over, and the table of equalities.
_WRITE, _EQUAL = "write", "equal"


@cache
def _bindings() -> Any:
    """The compiled module of egglog, without its Python package.

    The package formats with black, compiles classes and takes 0.2 s, twenty times as long, to import; none of that is
    used here. A program that imports egglog itself finds the same module.
    """
    package = importlib.util.find_spec("egglog")
    name = "egglog.bindings"
    found = None if package is None else PathFinder.find_spec(name, package.submodule_search_locations)
    if found is None or found.loader is None:
        raise ImportError("egglog's compiled module is missing", name=name)
    loaded = name in sys.modules
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    if not loaded:
        # It enters itself there, without its package, which would lack it then.
        sys.modules.pop(name, None)
    return module


def load() -> None:
    """Load egglog ahead of the first e-graph: nothing can be ended while it loads."""
    _bindings()


@cache
def home() -> int:
    """The process that made the first e-graph, which is asked for when that is made."""
    return os.getpid()


def check_process() -> None:
    """UsageError in a process that was forked from one that had e-graphs.

    egglog's threads are not copied by a fork, and a child waits for them forever.
    """
    if home.cache_info().currsize and home() != os.getpid():
        raise UsageError(
            f"process {os.getpid()} was forked from one that had used eqsat",
            expected="a process that was started anew: e-graphs use threads, and a fork does not copy them",
            remedy="start it by multiprocessing.get_context('spawn'), or fork before the first use",
        )


def keep_forever(things: Iterable[Any]) -> None:
    """Keep these from being freed: in a forked child, egglog would wait for a thread to free an e-graph."""
    for thing in things:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


class EngineError(EqsatError):
    """egglog refused a program; the e-graph it ran in cannot be used any further."""


class Engine:
    """One egglog e-graph over a single sort of tensors, written to as text and read as rows of integers.

    Every e-node that the caller makes is named by a natural number through the table ``node``; reading that table back
    says which numbers name one e-class. An Engine belongs to the thread that made it, and to its process: UsageError in
    one that was forked from another with engines.
    """

    def __init__(self) -> None:
        check_process()
        home()
        os.environ.setdefault("RUST_BACKTRACE", "0")
        os.environ.setdefault("RAYON_NUM_THREADS", "1")
        self._egraph: Any = _bindings().EGraph()
        _ENGINES.add(self)
        self._rows: dict[str, list[tuple[int, ...]]] = {}
        self._pairs: dict[tuple[int, int], int] = {}
        self._declared: set[str] = set()
        self._is_written = True
        self._known: tuple[dict[Any, int], list[list[int]]] | None = None
        self._run(f"(sort {_SORT})\n(constructor node (i64) {_SORT})\n(ruleset {_WRITE})")
        self._table(_EQUAL, 2, "(union (node n0) (node n1))")

    def constructor(self, name: str, arity: int) -> None:
        """Declare an operator of `arity` operands; its attributes are one number."""
        if self._declare(name, f"(constructor {name} (i64{f' {_SORT}' * arity}) {_SORT})"):
            operands = "".join(f" (node n{i})" for i in range(2, arity + 2))
            self._table(f"new-{name}", arity + 2, f"(union (node n0) ({name} n1{operands}))")

    def packed(self, name: str) -> None:
        """Declare an operator of one operand that stands for many; see `insert`."""
        self.constructor("operands", 2)
        self.constructor(name, 1)

    def presence(self, name: str) -> None:
        """Declare a relation over classes, for `mark`."""
        if self._declare(name, f"(relation {name} ({_SORT}))"):
            self._table(f"new-{name}", 1, f"({name} (node n0))")

    def _declare(self, name: str, program: str) -> bool:
        """Run a declaration, once; True the first time."""
        is_new = name not in self._declared
        if is_new:
            self._declared.add(name)
            self._run(program)
        return is_new

    def _table(self, name: str, numbers: int, action: str) -> None:
        """Declare a table of rows of numbers n0, n1, …; each becomes an action, and is forgotten.

        A command for each row would cost egglog ten times as much. The action names e-nodes by `node`, so that the
        order of rows does not matter: egglog makes one of what has the same name.
        """
        row = f"({name} {' '.join(f'n{i}' for i in range(numbers))})"
        self._run(
            f"(relation {name} ({' '.join(['i64'] * numbers)}))\n"
            f'(rule ({row}) ({action} (delete {row})) :ruleset {_WRITE} :name "{name}")'
        )

    def ruleset(self, name: str) -> None:
        """Declare a set of queries that run together."""
        self._run(f"(ruleset {name})")

    def query(self, relation: str, ruleset: str, facts: Sequence[str], tensors: int, numbers: int) -> None:
        """Declare a query over variables t0, t1, … and n0, n1, …; its matches stay in `relation` until read."""
        sorts = " ".join([_SORT] * tensors + ["i64"] * numbers)
        row = " ".join([relation, *(f"t{i}" for i in range(tensors)), *(f"n{i}" for i in range(numbers))])
        self.flush()
        self._run(
            f"(relation {relation} ({sorts}))\n(ruleset clear-{relation})\n"
            f'(rule ({" ".join(facts)}) (({row})) :ruleset {ruleset} :name "{relation}")\n'
            f'(rule (({row})) ((delete ({row}))) :ruleset clear-{relation} :name "clear-{relation}")'
        )

    def insert(self, number: int, name: str, attrs: int, operands: Sequence[int], *, packed: bool = False) -> None:
        """Add an e-node called `number`.

        A table with a column for every operand costs egglog the square of their number, or more. `packed` puts them
        into a balanced tree of pairs: equal operands still make equal e-nodes, and no query sees the pairs. Each pair
        is an e-node of its own with a number below zero, since egglog takes the square of the length of a term.
        """
        while packed and len(operands) > 1:
            paired = [self._pair(a, b) for a, b in zip(operands[::2], operands[1::2], strict=False)]
            operands = [*paired, *operands[len(operands) - len(operands) % 2 :]]
        self._set(number, name, attrs, operands)

    def _pair(self, a: int, b: int) -> int:
        """The number of a pair of e-nodes, written once."""
        known = self._pairs.get((a, b))
        if known is None:
            known = self._pairs[a, b] = -1 - len(self._pairs)
            self._set(known, "operands", 0, (a, b))
        return known

    def _set(self, number: int, name: str, attrs: int, operands: Sequence[int]) -> None:
        self._add(f"new-{name}", (number, attrs, *operands))

    def mark(self, name: str, number: int) -> None:
        """Record the class of an e-node in a relation."""
        self._add(f"new-{name}", (number,))

    def union(self, a: int, b: int) -> None:
        """State that two e-nodes are equal; all such take effect at once, since congruence is restored each time."""
        self._add(_EQUAL, (a, b))

    def _add(self, table: str, row: tuple[int, ...]) -> None:
        self._rows.setdefault(table, []).append(row)

    def flush(self) -> None:
        """Hand over all that was written since the last time; egglog restores congruence.

        TimeUp where the deadline is over before all is handed over; the rest is, when this is called again.
        """
        if not self._rows and self._is_written:
            return
        self._known, self._is_written = None, False
        while self._rows:
            check(0)
            table, rows = next(iter(self._rows.items()))
            self._hand_over(table, rows[:_CHUNK])
            del rows[:_CHUNK]
            if not rows:
                del self._rows[table]
        self._run(f"(run-schedule (run {_WRITE}))")
        self._is_written = True

    def _hand_over(self, table: str, rows: Sequence[tuple[int, ...]]) -> None:
        """Put rows into a table, as commands where they are few or no file can be written, else from a file."""
        if len(rows) >= _FEW:
            try:
                with lent("".join("\t".join(map(str, row)) + "\n" for row in rows)) as path:
                    command = _bindings().Input(_bindings().PanicSpan(), table, str(path))
                    self._guarded(lambda: self._egraph.run_program(command))
                return
            except OSError:
                pass  # nowhere to write: commands do the same, in more time
        for first in range(0, len(rows), _AT_ONCE):
            some = rows[first : first + _AT_ONCE]
            self._run("\n".join(f"({table} {' '.join(map(str, row))})" for row in some))

    def match(self, ruleset: str) -> None:
        """Run the queries of a ruleset once, on what is new since they ran before.

        egglog's schedulers would count matches beforehand, but run each query on the whole e-graph every time.
        """
        self.flush()
        self._run(f"(run-schedule (run {ruleset}))")

    def read(
        self, relations: Iterable[tuple[str, int]], limit: int | None = None
    ) -> tuple[list[list[int]], dict[str, list[tuple[int, ...]]]]:
        """The e-classes, as lists of the numbers that name them, and the recorded matches, which are then forgotten.

        The list is the same one as before where nothing was written since. For each relation and its number of tensor
        columns, rows hold positions in it, then numbers. A relation with more than `limit` matches is forgotten unread.

        Where one variable stands twice, egglog was seen to match terms whose class no number names any more. They are
        left out: no match is wrong by that, but one is lost where what they became is not matched as well.
        """
        self.flush()
        relations = list(relations)
        if self._known is not None and not relations:
            return self._known[1], {}
        functions = self._guarded(lambda: self._egraph.freeze().functions)
        number = self._egraph.value_to_i64
        if self._known is None:  # matching makes no terms: the classes are those of the last time until some are made
            self._known = self._classes(functions["node"].rows)
        index, classes = self._known
        matches: dict[str, list[tuple[int, ...]]] = {}
        matched: list[str] = []
        for relation, tensors in relations:
            rows = functions[relation].rows
            if rows:
                matched.append(relation)
            if rows and (limit is None or len(rows) <= limit):
                read = matches[relation] = []
                for row in rows:
                    inputs = row.inputs
                    columns = [index.get(v, -1) for v in inputs[:tensors]]
                    if -1 not in columns:
                        read.append((*columns, *[number(v) for v in inputs[tensors:]]))
        if matched:
            self._run("(run-schedule " + " ".join(f"(run clear-{relation})" for relation in matched) + ")")
        return classes, matches

    def _classes(self, rows: Iterable[Any]) -> tuple[dict[Any, int], list[list[int]]]:
        """The classes that numbers name, and the place of each value among them."""
        number = self._egraph.value_to_i64
        index: dict[Any, int] = {}
        classes: list[list[int]] = []
        for row in rows:
            named = number(row.inputs[0])
            if named < 0:
                continue  # a pair of operands
            position = index.setdefault(row.output, len(classes))
            if position == len(classes):
                classes.append([named])
            else:
                classes[position].append(named)
        return index, classes

    def close(self) -> None:
        """Release egglog's e-graph, in the thread that made it; this engine cannot be used afterwards."""
        self._egraph = None

    def sizes(self) -> dict[str, int]:
        """The number of rows of each table."""
        self.flush()
        (output,) = self._run("(print-size)")
        return dict(output.sizes)

    def _run(self, program: str) -> list[Any]:
        commands = self._guarded(lambda: self._egraph.parse_program(program))
        outputs: list[Any] = self._guarded(lambda: self._egraph.run_program(*commands))
        return outputs

    def _guarded(self, call: Any) -> Any:
        """Run a call into egglog, whose mistakes surface as exceptions outside Exception."""
        try:
            return call()
        except BaseException as error:
            if type(error).__name__ in ("PanicException", "EggSmolError"):
                raise EngineError(
                    f"egglog refused a program: {str(error).strip().splitlines()[0]}",
                    remedy="this is a fault in a rule or in eqsat; run again without the rule that was named last",
                ) from error
            raise


#: The engines of this process, which a forked child must not free.
_ENGINES: weakref.WeakSet[Engine] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):  # a system that forks
    os.register_at_fork(after_in_child=lambda: keep_forever(engine._egraph for engine in _ENGINES))
