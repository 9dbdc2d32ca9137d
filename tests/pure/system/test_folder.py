"""A folder bounded in bytes."""

import os
from pathlib import Path

from eqsat.system.folder import BoundedFolder


def names(folder: BoundedFolder) -> set[str]:
    return {path.stem for path in folder.path.glob("*.kept")}


def aged(folder: BoundedFolder, name: str, seconds: int) -> None:
    os.utime(folder.path / f"{name}.kept", (seconds, seconds))


def test_files_are_read_as_they_were_written(tmp_path: Path) -> None:
    folder = BoundedFolder(tmp_path / "a" / "b", 100, ".kept")
    assert folder.read("one") is None
    assert folder.write("one", b"1") and folder.write("one", b"22")
    assert folder.read("one") == b"22"
    folder.remove("one")
    folder.remove("one")
    assert folder.read("one") is None and not list(folder.path.iterdir())


def test_the_least_recently_used_files_go_first(tmp_path: Path) -> None:
    folder = BoundedFolder(tmp_path, 30, ".kept")
    for age, name in enumerate(("one", "two", "three")):
        folder.write(name, b"x" * 10)
        aged(folder, name, 1000 + age)
    assert folder.read("one") is not None
    assert folder.write("four", b"x" * 10)
    assert names(folder) == {"one", "three", "four"}
    assert not folder.write("five", b"x" * 31)
    assert folder.write("six", b"x" * 30)
    assert names(folder) == {"six"}


def test_other_files_stay(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"x" * 100)
    folder = BoundedFolder(tmp_path, 10, ".kept")
    folder.write("one", b"x" * 10)
    folder.write("two", b"x" * 10)
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", "two.kept"}


def test_a_folder_that_cannot_be_written_to_gets_no_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = BoundedFolder(tmp_path / "file" / "below", 10, ".kept")
    assert not folder.write("one", b"1") and folder.read("one") is None
