"""The persistent cache of the fastest known options of kernels, shared by any number of processes."""

from __future__ import annotations

import os
import sqlite3
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import TypeVar

from eqsat.errors import UsageError
from eqsat.runtime.tuning import database
from eqsat.runtime.tuning.candidate import OptionValue, TuningCandidate
from eqsat.runtime.tuning.database import COLUMNS, DamagedError, OtherFileError
from eqsat.runtime.tuning.records import KernelEntry, KernelKey, read_records, record_of, row_of, write_records
from eqsat.system.cache import cache_folder

#: The environment variable that names the file where no argument does.
TUNING_VARIABLE = "EQSAT_TUNING_CACHE"
_KEY = "text = ? AND shapes = ? AND target = ? AND architecture = ?"
_SELECT = f"SELECT {', '.join(COLUMNS)} FROM kernels"
_PUT = f"INSERT OR REPLACE INTO kernels ({', '.join(COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
#: Files that are opened one after the other, if each is moved away or damaged, before entries stay in memory.
_ATTEMPTS = 5

Answer = TypeVar("Answer")


def tuning_file() -> Path:
    """The file named by EQSAT_TUNING_CACHE, or one in the user's cache folder."""
    named = os.environ.get(TUNING_VARIABLE)
    return Path(named) if named else cache_folder() / "tuning.sqlite3"


class KernelCache:
    """The fastest known options of kernels by key, in one SQLite file, for any number of threads and processes.

    A slower entry never replaces a faster one. What is put is on the disk when the call returns. Nothing that happens
    to the file is an error: a damaged entry counts as missing, a damaged file is set aside beside a new one that has
    its undamaged entries, and where the file cannot be written, entries stay in memory; the latter two with a
    RuntimeWarning. UsageError for a path of another program's SQLite file.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = tuning_file() if path is None else Path(path)
        self._lock = threading.RLock()
        self._in_memory = str(path) == ":memory:"
        self._opened_as: tuple[int, tuple[int, int] | None] = (os.getpid(), None)
        self._abandoned: list[sqlite3.Connection] = []
        self._connection = database.open_memory() if self._in_memory else self._opened()

    def get(self, key: KernelKey) -> KernelEntry | None:
        """The fastest known entry of a key, or None."""
        return self._run(lambda connection: _known(connection, key))

    def best(self, key: KernelKey) -> TuningCandidate | None:
        """The fastest known options of a key, to start a search from, or None."""
        entry = self.get(key)
        return None if entry is None else entry.options

    def put(self, key: KernelKey, entry: KernelEntry) -> bool:
        """Keep an entry if none is known that is as fast; True if it is kept."""
        return self._merge([(key, entry)]) == 1

    def inject(self, key: KernelKey, options: Mapping[str, OptionValue], seconds: float, payload: str = "") -> bool:
        """Keep options and code that were found otherwise, for example by hand, if none as fast are known.

        A call takes `seconds` seconds. True if they are kept; UsageError for values that no option can have.
        """
        return self.put(key, KernelEntry(TuningCandidate(options), seconds, payload))

    def entries(self) -> dict[KernelKey, KernelEntry]:
        """Every entry by its key, in the order of the keys."""
        rows = self._run(lambda connection: connection.execute(f"{_SELECT} NOT INDEXED").fetchall())
        records = [record for row in rows if (record := record_of(row))]
        # Where an index is damaged a key may have two rows, of which the fastest is to come last.
        return dict(sorted(records, key=lambda record: (record[0], -record[1].seconds)))

    def export(self, path: str | Path) -> int:
        """Write every entry to a file of JSON lines, and return their number; UsageError where that fails."""
        entries = self.entries()
        write_records(Path(path), entries.items())
        return len(entries)

    def import_(self, path: str | Path) -> int:
        """Take in the entries of an exported file that are new or faster, and return the number of those.

        All or none: UsageError, with the line, for a file that is not in the format of `export`.
        """
        return self._merge(read_records(Path(path)))

    def close(self) -> None:
        """Close the file; the cache cannot be used afterwards."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> KernelCache:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def _merge(self, records: Sequence[tuple[KernelKey, KernelEntry]]) -> int:
        """Put entries in one transaction, and return the number of those that are kept."""

        def merge(connection: sqlite3.Connection) -> int:
            with database.transaction(connection):
                return sum(_put(connection, key, entry) for key, entry in records)

        return self._run(merge)

    def _run(self, action: Callable[[sqlite3.Connection], Answer]) -> Answer:
        """The result of an action on the file that is at the path, once it is done there.

        Another process may set the file aside at any time; its entries up to then are taken over by that process, and
        what was done to it afterwards is done again here.
        """
        with self._lock:
            for _ in range(_ATTEMPTS):
                if not self._is_current():
                    self._reopen()
                try:
                    with database.damage_told():
                        answer = action(self._connection)
                except DamagedError:
                    self._replace(self._rebuilt())
                except sqlite3.Error as error:
                    if self._is_current():  # SQLite refuses to write a file that was moved
                        self._replace(self._without_file(error))
                else:
                    if self._is_current():
                        return answer
            if not self._in_memory:
                self._replace(self._without_file(OSError("the file is replaced again and again")))
            return action(self._connection)

    def _is_current(self) -> bool:
        """True if the connection is one of this process to the file that is at the path."""
        if self._in_memory:
            return True
        return self._opened_as == (os.getpid(), database.identity(self.path))

    def _reopen(self) -> None:
        if self._opened_as[0] == os.getpid():
            self._replace(self._opened())
        else:  # a connection must not cross a fork, nor be closed after it
            self._abandoned.append(self._connection)
            self._connection = self._opened()

    def _replace(self, connection: sqlite3.Connection) -> None:
        self._connection.close()
        self._connection = connection

    def _opened(self) -> sqlite3.Connection:
        """A connection to the file; to one in its place where it is damaged, to memory where it cannot be used."""
        before = database.identity(self.path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = database.open_file(self.path)
        except DamagedError:
            return self._rebuilt()
        except OtherFileError as error:
            raise UsageError(
                str(error),
                where=str(self.path),
                expected="a file of tuned kernels, or none yet",
                remedy=f"name another file, by argument or by {TUNING_VARIABLE}",
            ) from error
        except (OSError, sqlite3.Error) as error:
            return self._without_file(error)
        self._opened_as = os.getpid(), before or database.identity(self.path)
        return connection

    def _rebuilt(self) -> sqlite3.Connection:
        """A connection to a new file in place of the damaged one, with what can be read of that."""
        try:
            connection, aside = database.rebuilt(self.path)
            self._opened_as = os.getpid(), database.identity(self.path)
            if aside is not None:
                count = _restore(connection, aside)
                self._warn(f"the damaged cache of tuned kernels is now {aside}; {count} of its entries are left")
        except (OSError, sqlite3.Error) as error:
            return self._without_file(error)
        return connection

    def _without_file(self, error: Exception) -> sqlite3.Connection:
        """A connection to memory, with what can be read of the file."""
        self._in_memory = True
        connection = database.open_memory()
        _restore(connection, self.path)
        self._warn(f"the cache of tuned kernels cannot be used ({error}); entries are kept in memory only")
        return connection

    def _warn(self, message: str) -> None:
        warnings.warn(f"{self.path}: {message}", RuntimeWarning, stacklevel=2)


def _known(connection: sqlite3.Connection, key: KernelKey) -> KernelEntry | None:
    rows = connection.execute(f"{_SELECT} WHERE {_KEY}", astuple(key)).fetchall()
    return next((record[1] for row in rows if (record := record_of(row))), None)


def _put(connection: sqlite3.Connection, key: KernelKey, entry: KernelEntry) -> bool:
    """Write an entry if none is known that is as fast; a damaged one is replaced by any."""
    known = _known(connection, key)
    if known is not None and known.seconds <= entry.seconds:
        return False
    connection.execute(_PUT, row_of(key, entry))
    return True


def _restore(connection: sqlite3.Connection, path: Path) -> int:
    """Put the undamaged rows of another file, and return their number."""
    records = [record for row in database.readable_rows(path) if (record := record_of(row))]
    with database.transaction(connection):
        return sum(_put(connection, *record) for record in records)
