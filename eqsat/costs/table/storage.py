"""The SQLite file behind a cost table: how it is opened, made, brought up to date and copied."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

#: The format of the file. Version 1 had no plans, version 2 no hot times; they are brought up to date where they lie.
VERSION = 3
BUSY_SECONDS = 30.0
#: No permission, no folder, or no room: opening a table writes its log.
UNWRITABLE = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_AUTH,
}
CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}

APPLICATION = 0x45515341
SCHEMA = """CREATE TABLE entries (
    environment TEXT NOT NULL, key TEXT NOT NULL, seconds REAL NOT NULL, p10 REAL NOT NULL, p90 REAL NOT NULL,
    samples INTEGER NOT NULL, plan TEXT NOT NULL DEFAULT '', hot REAL, PRIMARY KEY (environment, key)) WITHOUT ROWID"""
#: The columns of the newest format: name, type, whether NULL is refused, and whether it is part of the key. Older
#: formats lack the last ones.
_COLUMNS = (
    ("environment", "TEXT", 1, 1),
    ("key", "TEXT", 1, 2),
    ("seconds", "REAL", 1, 0),
    ("p10", "REAL", 1, 0),
    ("p90", "REAL", 1, 0),
    ("samples", "INTEGER", 1, 0),
    ("plan", "TEXT", 1, 0),
    ("hot", "REAL", 0, 0),
)
_MIGRATIONS = {
    1: "ALTER TABLE entries ADD COLUMN plan TEXT NOT NULL DEFAULT ''",
    2: "ALTER TABLE entries ADD COLUMN hot REAL",
}


class ForeignError(sqlite3.Error):
    """The file is an SQLite file of something else, or of a later version."""


def code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; errors raised by Python's module itself have none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def connect(path: str) -> sqlite3.Connection:
    """Open a file that any number of processes write at once, and make it where there is none.

    The write-ahead log keeps the commits of a killed process; a loss of power may take the last transactions, never a
    part of one.
    """
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        version = version_of(connection)
        _use_wal(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        if version != VERSION:
            connection.execute("BEGIN IMMEDIATE")
            upgrade(connection)
            connection.execute("COMMIT")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def memory() -> sqlite3.Connection:
    """An empty table without a file."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    upgrade(connection)
    return connection


def copied(path: str) -> sqlite3.Connection:
    """Copy the content of a file into memory; the file is not written, and need not be writable.

    A folder that cannot be written has no place for the index of the write-ahead log, which `immutable` does without.
    """
    location = Path(path).resolve().as_uri()
    try:
        return _copied(f"{location}?mode=ro")
    except sqlite3.Error as error:
        if code(error) not in UNWRITABLE:
            raise
    return _copied(f"{location}?immutable=1")


def _copied(uri: str) -> sqlite3.Connection:
    source = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)
    memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    try:
        version_of(source)
        source.backup(memory)
        upgrade(memory)
    except sqlite3.Error:
        memory.close()
        raise
    finally:
        source.close()
    return memory


def version_of(connection: sqlite3.Connection) -> int:
    """The format of a table, 0 for an empty file; ForeignError for a file that is none or that came later."""
    if not connection.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()[0]:
        return 0
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if application != APPLICATION:
        raise ForeignError("an SQLite file of another program")
    if not 1 <= version <= VERSION:
        raise ForeignError(f"a cost table of format {version}")
    _check_schema(connection, version)
    return version


def _check_schema(connection: sqlite3.Connection, version: int) -> None:
    """ForeignError where a file holds anything but the table: a view may have no end, a trigger does what it likes."""
    objects = connection.execute("SELECT type, name, sql FROM sqlite_schema").fetchall()
    if [(kind, name) for kind, name, _ in objects] != [("table", "entries")] or "VIRTUAL" in str(objects[0][2])[:30]:
        shown = ", ".join(f"{kind} {name}" for kind, name, _ in objects[:5])
        raise ForeignError(f"a cost table that holds something else: {shown}")
    columns = connection.execute("PRAGMA table_xinfo(entries)").fetchall()
    present = [(name, kind, required, place) for _, name, kind, required, _, place, hidden in columns if not hidden]
    # Another process may have brought the table up to date since its format was read, so there may be more of them.
    least = len(_COLUMNS) + version - VERSION
    if len(present) < max(least, len(columns)) or present != list(_COLUMNS[: len(present)]):
        raise ForeignError("a cost table with other columns than its format has")


def upgrade(connection: sqlite3.Connection) -> None:
    """Make the table, or bring it up to date from an older format; nothing where another process has done so."""
    version = version_of(connection)
    if version == 0:
        connection.execute(SCHEMA)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
    for older in range(version or VERSION, VERSION):
        connection.execute(_MIGRATIONS[older])
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Write-ahead logging; SQLite does not wait for the lock this takes, so this does."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if code(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
