"""What a terminal shows of a run, how Ctrl-C is asked about, and how text files are written."""

import io
import os
import signal
import stat
from pathlib import Path

import pytest
from rich.console import Console

from eqsat.commands.arguments import duration, names, size, weight
from eqsat.commands.display import interruptible, progress_bar
from eqsat.commands.targets import check_target, is_same_file
from eqsat.errors import UsageError
from eqsat.report.report import Progress
from eqsat.system.files import write_text


def test_the_bar_shows_phase_nodes_best_cost_and_gap():
    screen = io.StringIO()
    with progress_bar(Console(file=screen, force_terminal=True, width=120)) as follow:
        follow(Progress("saturate", nodes=1840, detail="merge"))
        follow(Progress("extract", nodes=1840, best=1.6e-3, bound=1.2e-3))
        follow(Progress("measure", detail="timing"))
    (line,) = [part for part in screen.getvalue().split("\x1b[2K") if "measure" in part]
    for shown in ("1 840 e-nodes", "best 1.6 ms", "gap 25 %", "timing"):
        assert shown in line


def test_the_bar_is_silent_where_no_one_watches():
    screen = io.StringIO()
    with progress_bar(Console(file=screen)) as follow:
        follow(Progress("saturate", nodes=1840))
    assert screen.getvalue() == ""


def test_the_first_ctrl_c_is_a_request_and_the_second_an_end(capfd):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interruptible() as should_stop:
        assert not should_stop()
        os.kill(os.getpid(), signal.SIGINT)
        assert should_stop()
        assert "press Ctrl-C again to abort" in capfd.readouterr().err
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(("text", "seconds"), [("30", 30), ("1.5h", 5400), ("2 m", 120), ("-1s", -1), (".5s", 0.5)])
def test_durations_are_numbers_with_units(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (duration, "", "'' is no duration"),
        (duration, "inf", "'inf' is no duration"),
        (duration, "1d", "expected a number with ms, s, m or h"),
        (size, "batch", "'batch' is no size"),
        (size, "=3", "'=3' is no size"),
        (size, "batch=-3", "expected NAME=NUMBER with a number above 0"),
        (weight, "time=", "'time=' is no weight"),
        (names, ",", "no name given"),
    ],
)
def test_malformed_arguments_say_what_is_expected(parse, text, message):
    with pytest.raises(ValueError, match=message):
        parse(text)


def test_a_text_file_replaces_another_whole(tmp_path):
    target = tmp_path / "report.json"
    target.write_text("old")
    write_text(target, "new – Ω\n")
    assert target.read_text(encoding="utf-8") == "new – Ω\n"
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~current_umask()
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def current_umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_text_file_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="the file cannot be written: No such file or directory"):
        write_text(tmp_path / "nowhere" / "report.json", "{}")


def test_checking_a_target_leaves_nothing_behind(tmp_path):
    check_target(tmp_path / "out.onnx", [tmp_path / "in.onnx"])
    assert list(tmp_path.iterdir()) == []


def test_one_file_is_known_under_all_its_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a").write_text("x")
    Path("b").symlink_to("a")
    Path("c").hardlink_to("a")
    Path("d").write_text("x")
    assert [is_same_file(Path("a"), Path(n)) for n in ("a", "./a", "b", "c", "d", "e")] == [True] * 4 + [False] * 2
    assert is_same_file(Path("e"), tmp_path / "f" / ".." / "e")
