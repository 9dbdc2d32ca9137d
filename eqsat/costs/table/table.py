"""Measured costs in one SQLite file, shared by any number of processes."""

from __future__ import annotations

import os
import sqlite3
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from eqsat.costs.devices.device import Device
from eqsat.costs.table import storage
from eqsat.costs.table.entry import Entry, TableRecord, preferred
from eqsat.costs.table.environment import Environment
from eqsat.costs.table.shipped import shipped_entries, shipped_records
from eqsat.errors import CostError
from eqsat.system.cache import cache_folder

#: The environment variable that names the file where no argument does.
VARIABLE = "EQSAT_COST_TABLE"
_VALUES = "seconds, p10, p90, samples, plan, hot"
_PUT = f"INSERT OR REPLACE INTO entries (environment, key, {_VALUES}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


class Key(Protocol):
    """The key of a measured kernel or graph, as one line of text."""

    @property
    def text(self) -> str:
        """The line; equal keys have equal lines."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of merging: entries that are new, that took the place of another, and that the table's own beat."""

    new: int
    replaced: int
    kept: int


def default_path() -> Path:
    """The file named by EQSAT_COST_TABLE, or one in the user's cache folder."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else cache_folder() / "costs.sqlite3"


class CostTable:
    """Measured costs by environment and operator key, in seconds.

    Every `put` is a transaction of its own: a process that is killed loses the entry it was writing and no other. Where
    the file has no entry, one that is shipped with eqsat for the same environment counts, unless `shipped` is False.
    Where the default file cannot be written, or any file can only be read, what is known is read into memory, new
    entries stay there, and a warning says so. CostError for a file that was asked for and cannot be made, and for one
    that is no cost table; every call raises it where the file is damaged or cannot be reached.
    `CostTable(":memory:")` is a table without a file.
    """

    def __init__(self, path: str | Path | None = None, *, shipped: bool = True) -> None:
        asked = path is not None or VARIABLE in os.environ
        self.path = str(path) if path is not None else str(default_path())
        self.in_memory = self.path == ":memory:"
        self.shipped = shipped
        self._process = os.getpid()
        self._connection = self._open(asked)

    @classmethod
    def copy(cls, path: str | Path) -> CostTable:
        """Copy the content of a file into memory: for the table of another machine, which is only read."""
        table = cls(":memory:", shipped=False)
        try:
            connection = storage.copied(str(path))
        except sqlite3.Error as error:
            raise fault(str(path), error) from error
        table.close()
        table.path, table._connection = str(path), connection
        return table

    def get(self, environment: Environment, key: Key) -> Entry | None:
        """The entry of a key, or None."""
        query = f"SELECT {_VALUES} FROM entries WHERE environment = ? AND key = ?"
        rows = self.execute(query, (environment.text, key.text))
        if rows:
            return self._entry(key.text, rows[0])
        return shipped_entries(environment).get(key.text) if self.shipped else None

    def put(self, environment: Environment, key: Key, entry: Entry) -> None:
        """Write one entry, in place of an older one; other processes see it once this returns."""
        self.execute(_PUT, _row(TableRecord(environment, key.text, entry)))

    def entries(self, environment: Environment) -> dict[str, Entry]:
        """Every entry of an environment by the text of its key, those that are shipped included."""
        shipped = dict(shipped_entries(environment)) if self.shipped else {}
        return shipped | self.own(environment)

    def own(self, environment: Environment) -> dict[str, Entry]:
        """Every entry of an environment that was measured into this table, by the text of its key."""
        return self._own(environment.text)

    def measured_here(self, environment: Environment) -> dict[str, Entry]:
        """The entries of an environment with those of its calibration, which scale others and are no costs."""
        return self.own(environment.calibration) | self.entries(environment)

    def environment(self, device: Device, threads: int = 1) -> Environment:
        """The environment whose entries are the costs of a device: this machine's where it has some.

        A GPU that is not here, or that nothing was measured on here, costs what it did where most was measured, by the
        latest protocol.
        """
        here = Environment.current(device, threads)
        if not device.gpu or self.entries(here):
            return here
        counts = {e: n for e, n in self.known(device.name).items() if e.is_measured}
        return max(counts, key=lambda e: (e.protocol, counts[e], e.text), default=here)

    def confirm(self, environment: Environment) -> int:
        """Take in the entries that wait for the end of a window of measurements, and return their number."""
        waiting = environment.unconfirmed
        count = len(self._own(waiting.text))
        if count:
            statement = "UPDATE OR REPLACE entries SET environment = ? WHERE environment = ?"
            self.execute(statement, (environment.text, waiting.text))
        return count

    def drop(self, environment: Environment) -> None:
        """Forget every entry of an environment."""
        self.execute("DELETE FROM entries WHERE environment = ?", (environment.text,))

    def merge(self, records: Iterable[TableRecord]) -> Merged:
        """Take in the entries of other tables, all in one transaction.

        Of two entries for one key in one environment, the `preferred` one stays, so that the order in which tables
        are merged makes no difference, nor does merging one twice.
        """
        best: dict[tuple[str, str], TableRecord] = {}
        for record in records:
            place = record.environment.text, record.key
            known = best.get(place)
            best[place] = record if known is None else known._replace(entry=preferred(known.entry, record.entry))
        self.execute("BEGIN IMMEDIATE", ())
        try:
            merged = self._merge(best)
        except BaseException:
            self.execute("ROLLBACK", ())
            raise
        self.execute("COMMIT", ())
        return merged

    def records(self) -> Iterator[TableRecord]:
        """Every entry of the file in the order of environment and key, without shipped entries."""
        for text in self.environments():
            environment = Environment.parse(text)
            yield from (TableRecord(environment, key, entry) for key, entry in self._own(text).items())

    def environments(self) -> dict[str, int]:
        """The text of every environment with entries in the file, and how many it has."""
        query = "SELECT environment, COUNT(*) FROM entries GROUP BY environment ORDER BY environment"
        return dict(self.execute(query, ()))

    def mismatch(self, environment: Environment) -> str | None:
        """The entries for other environments of a device, if the file has none for this one; else None.

        The differences are those of the environment which has most entries.
        """
        counts = {Environment.parse(text): n for text, n in self.environments().items()}
        of_device = {e: n for e, n in counts.items() if e.device == environment.device and e.is_measured}
        if not of_device or self.entries(environment):
            return None
        most = max(of_device, key=lambda e: of_device[e])
        total = sum(of_device.values())
        entries = f"{total} {'entry' if total == 1 else 'entries'} of the cost table {self.path}"
        return f"{entries}, measured in another environment: {'; '.join(most.differences(environment))}"

    def stand_in(self, environment: Environment, device: Device) -> str | None:
        """The differences of the environment that costs are taken from to that of the same GPU here, else None."""
        here = Environment.current(device, environment.threads)
        if environment == here or not self.entries(environment) or not device.is_here:
            return None
        different = "; ".join(environment.differences(here))
        return f"costs were measured in another environment: {different}; `eqsat measure --device cuda` measures here"

    def known(self, device: str) -> dict[Environment, int]:
        """Every environment of a device with entries in the file or shipped ones, and how many it has."""
        parsed = ((Environment.parse(text), n) for text, n in self.environments().items())
        counts = {environment: n for environment, n in parsed if environment.device == device}
        for record in shipped_records(device) if self.shipped else ():
            counts[record.environment] = counts.get(record.environment, 0) + 1
        return counts

    def close(self) -> None:
        """Close the file; the table cannot be used afterwards."""
        self._connection.close()

    def __enter__(self) -> CostTable:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _own(self, environment: str) -> dict[str, Entry]:
        query = f"SELECT key, {_VALUES} FROM entries WHERE environment = ? ORDER BY key"
        return {key: self._entry(key, rest) for key, *rest in self.execute(query, (environment,))}

    def _entry(self, key: str, values: Sequence[Any]) -> Entry:
        try:
            return Entry(*values)
        except CostError as error:
            raise CostError(
                error.what,
                where=f"{self.path}: {key}",
                expected=error.expected,
                remedy="the file was changed by another program; delete it, and `eqsat measure` fills it again",
            ) from error

    def _merge(self, best: dict[tuple[str, str], TableRecord]) -> Merged:
        known = {text: self._own(text) for text in {environment for environment, _ in best}}
        new = replaced = 0
        for (environment, key), record in best.items():
            present = known[environment].get(key)
            if present is not None and preferred(present, record.entry) == present:
                continue
            new, replaced = (new + 1, replaced) if present is None else (new, replaced + 1)
            self.execute(_PUT, _row(record))
        return Merged(new, replaced, len(best) - new - replaced)

    def execute(self, statement: str, values: tuple[Any, ...]) -> list[Any]:
        """Run a statement of SQL; after a fork in a connection of the child's own."""
        if self._process != os.getpid() and not self.in_memory:
            # A connection must not cross a fork.
            self._process, self._connection = os.getpid(), self._open(True)
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise fault(self.path, error) from error

    def _open(self, asked: bool) -> sqlite3.Connection:
        if self.in_memory:
            return storage.memory()
        try:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            return storage.connect(self.path)
        except OSError as error:
            return self._fallback(asked, error)
        except sqlite3.Error as error:
            if storage.code(error) in storage.UNWRITABLE:
                return self._fallback(asked, error)
            raise fault(self.path, error) from error

    def _fallback(self, asked: bool, error: Exception) -> sqlite3.Connection:
        """The table in memory, with the content of the file if it can be read."""
        readable = Path(self.path).is_file() and os.access(self.path, os.R_OK)
        if asked and not readable:
            raise CostError(
                f"the cost table cannot be opened: {error}",
                where=self.path,
                expected="a file in a folder that can be written",
                remedy=f"name another file, or unset {VARIABLE} for the one in the user's cache",
            ) from error
        warnings.warn(
            f"{self.path}: the cost table cannot be written ({error}); measured costs are kept in memory only",
            RuntimeWarning,
            stacklevel=4,
        )
        self.in_memory = True
        if not readable:
            return storage.memory()
        try:
            return storage.copied(self.path)
        except sqlite3.Error as failure:
            raise fault(self.path, failure) from failure


def fault(path: str, error: sqlite3.Error) -> CostError:
    """An error that SQLite raised, as one that names the file and the remedy."""
    if isinstance(error, storage.ForeignError):
        return CostError(
            str(error),
            where=path,
            expected=f"a cost table of format 1 to {storage.VERSION}, which this version of eqsat reads",
            remedy=f"name another file, by argument or by {VARIABLE}, or update eqsat",
        )
    if storage.code(error) in storage.CORRUPT:
        return CostError(
            f"the cost table is damaged: {error}",
            where=path,
            expected="an SQLite file written by eqsat",
            remedy="delete it; `eqsat measure` fills it again",
        )
    return CostError(
        f"the cost table failed: {error}",
        where=path,
        expected=f"an open table, a disk with room, and a lock within {storage.BUSY_SECONDS:.0f} s",
        remedy=f"make room, or name another file, by argument or by {VARIABLE}",
    )


def _row(record: TableRecord) -> tuple[Any, ...]:
    entry = record.entry
    values = (entry.seconds, entry.p10, entry.p90, entry.samples, entry.plan, entry.hot)
    return (record.environment.text, record.key, *values)
