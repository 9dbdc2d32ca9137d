"""Measured costs in one SQLite file, shared by any number of processes."""

from __future__ import annotations

import os
import sqlite3
import time
import warnings
from pathlib import Path
from typing import Any

import platformdirs

from eqsat.costs.entry import Entry
from eqsat.costs.environment import Environment
from eqsat.costs.key import OpKey
from eqsat.errors import CostError

#: The environment variable that names the file where no argument does.
VARIABLE = "EQSAT_COST_TABLE"
_APPLICATION = 0x45515341
_VERSION = 1
_BUSY_SECONDS = 30.0
_SCHEMA = """CREATE TABLE IF NOT EXISTS entries (
    environment TEXT NOT NULL, key TEXT NOT NULL, seconds REAL NOT NULL, p10 REAL NOT NULL, p90 REAL NOT NULL,
    samples INTEGER NOT NULL, PRIMARY KEY (environment, key)) WITHOUT ROWID"""
_UNWRITABLE = {
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_AUTH,
}
_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def default_path() -> Path:
    """The file named by EQSAT_COST_TABLE, or one in the user's cache folder."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else Path(platformdirs.user_cache_dir("eqsat")) / "costs.sqlite3"


class CostTable:
    """Measured costs by environment and operator key.

    Every `put` is a transaction of its own: a process that is killed loses the entry it was writing and no other.
    Where the default file cannot be written, or any file can only be read, what is known is read into memory, new
    entries stay there, and a warning says so. CostError for a file that was asked for and cannot be made, and for one
    that is no cost table. `CostTable(":memory:")` is a table without a file.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        asked = path is not None or VARIABLE in os.environ
        self.path = str(path) if path is not None else str(default_path())
        self.in_memory = self.path == ":memory:"
        self._process = os.getpid()
        self._connection = self._open(asked)

    def get(self, environment: Environment, key: OpKey) -> Entry | None:
        """The entry of a key, or None."""
        query = "SELECT seconds, p10, p90, samples FROM entries WHERE environment = ? AND key = ?"
        rows = self._execute(query, (environment.text, key.text))
        return Entry(*rows[0]) if rows else None

    def put(self, environment: Environment, key: OpKey, entry: Entry) -> None:
        """Writes one entry, in place of an older one; other processes see it when this returns."""
        values = (environment.text, key.text, entry.seconds, entry.p10, entry.p90, entry.samples)
        self._execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?, ?)", values)

    def entries(self, environment: Environment) -> dict[str, Entry]:
        """Every entry of an environment by the text of its key."""
        query = "SELECT key, seconds, p10, p90, samples FROM entries WHERE environment = ? ORDER BY key"
        return {key: Entry(*rest) for key, *rest in self._execute(query, (environment.text,))}

    def environments(self) -> dict[str, int]:
        """The text of every environment with entries, and how many it has."""
        return dict(self._execute("SELECT environment, COUNT(*) FROM entries GROUP BY environment", ()))

    def close(self) -> None:
        """Closes the file; the table cannot be used afterwards."""
        self._connection.close()

    def __enter__(self) -> CostTable:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _execute(self, statement: str, values: tuple[Any, ...]) -> list[Any]:
        if self._process != os.getpid() and not self.in_memory:
            # A connection must not cross a fork.
            self._process, self._connection = os.getpid(), self._open(True)
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._fault(error) from error

    def _open(self, asked: bool) -> sqlite3.Connection:
        if self.in_memory:
            return _memory()
        try:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            return _connect(self.path)
        except OSError as error:
            return self._fallback(asked, error)
        except sqlite3.Error as error:
            if _code(error) in _UNWRITABLE:
                return self._fallback(asked, error)
            raise self._fault(error) from error

    def _fallback(self, asked: bool, error: Exception) -> sqlite3.Connection:
        """The table in memory, with what the file holds where it can be read."""
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
        memory = _memory()
        if readable:
            try:
                _copy(self.path, memory)
            except sqlite3.Error as fault:
                raise self._fault(fault) from fault
        return memory

    def _fault(self, error: sqlite3.Error) -> CostError:
        """What SQLite raised, as an error that names the file and what to do."""
        if isinstance(error, _ForeignError):
            return CostError(
                str(error),
                where=self.path,
                expected="a cost table of this version of eqsat",
                remedy=f"name another file, by argument or by {VARIABLE}",
            )
        if _code(error) in _CORRUPT:
            return CostError(
                f"the cost table is damaged: {error}",
                where=self.path,
                expected="an SQLite file written by eqsat",
                remedy="delete it; eqsat measure fills it again",
            )
        return CostError(
            f"the cost table failed: {error}",
            where=self.path,
            expected=f"an open table, a disk with room, and a lock within {_BUSY_SECONDS:.0f} s",
            remedy=f"make room, or name another file, by argument or by {VARIABLE}",
        )


class _ForeignError(sqlite3.Error):
    """The file is an SQLite file of something else."""


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; errors raised by Python's module itself have none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        _check_owner(connection)
        _use_wal(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_SCHEMA)
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {_VERSION}")
        connection.execute("COMMIT")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _check_owner(connection: sqlite3.Connection) -> None:
    """Refuses an SQLite file that another program, or a later version, has made."""
    if not connection.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()[0]:
        return
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != _APPLICATION:
        raise _ForeignError("an SQLite file of another program")
    if version != _VERSION:
        raise _ForeignError(f"a cost table of format {version}, not {_VERSION}")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Write-ahead logging; SQLite does not wait for the lock this takes, so this does."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if _code(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _memory() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.execute(_SCHEMA)
    return connection


def _copy(path: str, memory: sqlite3.Connection) -> None:
    """Reads a file that cannot be written into memory.

    A folder that cannot be written has no place for the index of the write-ahead log, which `immutable` does without.
    """
    location = Path(path).resolve().as_uri()
    for mode in ("mode=ro", "immutable=1"):
        source = sqlite3.connect(f"{location}?{mode}", uri=True, timeout=_BUSY_SECONDS)
        try:
            _check_owner(source)
            source.backup(memory)
            memory.execute(_SCHEMA)
            return
        except sqlite3.OperationalError as error:
            if _code(error) not in _UNWRITABLE or mode == "immutable=1":
                raise
        finally:
            source.close()
