"""The SQLite file behind the cache of tuned kernels: how it is opened, checked, and set aside where it is damaged."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # on Windows, where a file that another process has open cannot be moved in the first place
    fcntl = None  # type: ignore[assignment]

#: Seconds to wait for another process.
BUSY_SECONDS = 30.0
VERSION = 1
COLUMNS = ("text", "shapes", "target", "architecture", "options", "seconds", "payload", "checksum")
_APPLICATION = 0x45515354
_SCHEMA = """CREATE TABLE kernels (
    text TEXT NOT NULL, shapes TEXT NOT NULL, target TEXT NOT NULL, architecture TEXT NOT NULL, options TEXT NOT NULL,
    seconds REAL NOT NULL, payload TEXT NOT NULL, checksum BLOB NOT NULL,
    PRIMARY KEY (text, shapes, target, architecture))"""
#: Names of files beside the main one in which SQLite keeps what a killed process left unfinished.
_SIDE_FILES = ("-journal", "-wal", "-shm")


class DamagedError(sqlite3.DatabaseError):
    """The file is no SQLite file, or one whose content is not as it was written."""


class OtherFileError(sqlite3.DatabaseError):
    """The file is an SQLite file of another program."""


class LaterFormatError(sqlite3.DatabaseError):
    """The file was written by a later version."""


def open_file(path: Path) -> sqlite3.Connection:
    """Open a file that any number of processes write at once, and make it where there is none.

    Texts are read as bytes: damaged ones need not be UTF-8. The file has a rollback journal, not a write-ahead log, so
    that it can be set aside as a whole. DamagedError, OtherFileError, LaterFormatError, or the errors of SQLite where
    the file cannot be reached.
    """
    connection = _connection(str(path))
    try:
        with damage_told():
            _prepare(connection)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def open_memory() -> sqlite3.Connection:
    """An empty table without a file."""
    connection = _connection(":memory:")
    _prepare(connection)
    return connection


def _connection(name: str, *, uri: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(name, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=uri)
    connection.text_factory = bytes
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """A block whose statements are all done or none, and with which no other process interferes."""
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        yield


@contextmanager
def damage_told() -> Iterator[None]:
    """A block in which the errors of SQLite that mean damage are DamagedError."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise DamagedError(str(error)) from error
        raise


def _prepare(connection: sqlite3.Connection) -> None:
    """Make the table in an empty file, or check that the file has it."""
    if not _objects(connection):
        with transaction(connection):
            if not _objects(connection):  # another process may have been first
                connection.execute(_SCHEMA)
                connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                connection.execute(f"PRAGMA user_version = {VERSION}")
    is_ours = connection.execute("PRAGMA application_id").fetchone() == (_APPLICATION,)
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    is_whole = _objects(connection) == [(b"kernels", _SCHEMA.encode()), (b"sqlite_autoindex_kernels_1", None)]
    if is_ours and version > VERSION:
        raise LaterFormatError(f"it has format {version}, of a later version")
    if not is_ours and not is_whole:
        raise OtherFileError("an SQLite file of another program")
    if not (is_ours and is_whole and version == VERSION):
        raise DamagedError("a table of kernels that is not as it was made")


def _objects(connection: sqlite3.Connection) -> list[Any]:
    return connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY rowid").fetchall()


def rebuilt(path: Path) -> tuple[sqlite3.Connection, Path | None]:
    """The connection to a file in place of a damaged one, and the place to which that was moved.

    One process at a time looks whether the file is damaged, so that none moves what another has rebuilt; the place is
    None where another was first.
    """
    with _alone(path):
        try:
            connection = open_file(path)
            with damage_told():
                if connection.execute("PRAGMA quick_check(1)").fetchall() == [(b"ok",)]:
                    return connection, None
            connection.close()
        except DamagedError:
            pass
        aside = _set_aside(path)
        return open_file(path), aside


def _set_aside(path: Path) -> Path:
    aside = next(
        place for number in count(1) if not (place := path.with_name(f"{path.name}.damaged-{number}")).exists()
    )
    for suffix in _SIDE_FILES:  # before the file itself: SQLite would write an old journal into a new file
        with suppress(FileNotFoundError):
            Path(f"{path}{suffix}").replace(f"{aside}{suffix}")
    path.replace(aside)
    return aside


def readable_rows(path: Path) -> list[tuple[Any, ...]]:
    """The rows that can still be read of a file that is damaged or that cannot be written, some of them twice."""
    rows: list[tuple[Any, ...]] = []
    with suppress(sqlite3.Error, OSError), closing(_connection(":memory:")) as connection:
        connection.deserialize(_openable(path.read_bytes()))
        for order in ("ASC", "DESC"):  # reading ends at the damage, so what follows it is read from the other end
            query = f"SELECT {', '.join(COLUMNS)} FROM kernels NOT INDEXED ORDER BY rowid {order}"
            with suppress(sqlite3.Error):
                for row in connection.execute(query):
                    rows.append(row)
    return rows


def _openable(content: bytes) -> bytes:
    """The content of a file whose head is that of SQLite, and whose number of pages is to be taken from its length."""
    head = b"SQLite format 3\0"
    return head + content[len(head) : 28] + bytes(4) + content[32:]


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Make other processes wait that look at the same damaged file; nothing where the system cannot."""
    if fcntl is None:
        yield
        return
    with Path(f"{path}.lock").open("wb") as file:
        with suppress(OSError):  # some network file systems
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def identity(path: Path) -> tuple[int, int] | None:
    """The identity of a file, None where there is none."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_dev, state.st_ino
