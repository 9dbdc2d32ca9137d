"""The command line in a process of its own, in surroundings that are made for it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
#: The command line of this checkout.
EQSAT = (sys.executable, "-m", "eqsat")
_SECONDS = 120.0


def environment(**more: str) -> dict[str, str]:
    """The variables of a process: the fewest that Python needs, this checkout, and those given."""
    kept = {k: os.environ[k] for k in ("PATH", "LANG", "SYSTEMROOT") if k in os.environ}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **more}


def run(
    command: Sequence[str | Path], folder: Path, variables: Mapping[str, str], **more: Any
) -> subprocess.CompletedProcess[str]:
    """Runs a command in a folder to its end."""
    return subprocess.run(
        [str(c) for c in command],
        cwd=folder,
        env=dict(variables),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
        **more,
    )


def write_model(path: Path) -> None:
    """A small model in which rules find something, with weights of some 20 kB."""
    import eqsat
    from eqsat.language.onnx.write.exporter import save

    rng = np.random.default_rng(0)
    g = eqsat.Graph("small")
    x, v = g.input("x", (4, 16)), g.input("v", (2, 64))
    w = g.constant(rng.standard_normal((16, 16)).astype(np.float32))
    g.output("y", eqsat.relu(x @ w) + eqsat.relu(x @ w))
    g.output("z", v @ g.constant(rng.standard_normal((64, 64)).astype(np.float32)))
    save(g.build(), path)


def is_one_error(done: subprocess.CompletedProcess[str], code: int = 2) -> bool:
    """Whether a command ended with one clear error of eqsat."""
    return done.returncode == code and "error: " in done.stderr and not is_broken(done)


def is_broken(done: subprocess.CompletedProcess[str]) -> bool:
    """Whether a command failed in a way that no user should see."""
    return done.returncode < 0 or "Traceback" in done.stderr or "unexpected" in done.stderr


def words(done: subprocess.CompletedProcess[str]) -> str:
    """How a command ended, for a message."""
    return f"{' '.join(map(str, done.args))[-200:]}: exit code {done.returncode}: {done.stderr[-600:]}"


@cache
def can_mount() -> bool:
    """Whether a file system of its own can be given to a process here."""
    try:
        done = subprocess.run([*_apart(), "true"], capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def on_small_disk(kibibytes: int, place: Path, command: Sequence[str | Path]) -> list[str]:
    """A command whose view of a folder is a file system of its own, of so many KiB.

    What the folder holds is copied there before, and what is there afterwards comes back to it.
    """
    script = (
        'size=$1; place=$2; shift 2; held=$(mktemp -d); cp -a "$place/." "$held/"; '
        'mount -t tmpfs -o size="${size}k" none "$place" || exit 99; cp -a "$held/." "$place/"; rm -rf "$held"; '
        '"$@"; code=$?; cp -a "$place/." "$held.after/" 2>/dev/null || { mkdir "$held.after"; '
        'cp -a "$place/." "$held.after/"; }; cd /; umount "$place" 2>/dev/null || umount -l "$place"; '
        'find "$place" -mindepth 1 -delete; cp -a "$held.after/." "$place/"; rm -rf "$held.after"; exit $code'
    )
    return [*_unshared(), "sh", "-c", script, "sh", str(kibibytes), str(place), *map(str, command)]


def on_read_only(place: Path, command: Sequence[str | Path]) -> list[str]:
    """A command for which nothing in a folder can be written, whoever runs it."""
    bind = 'mount --bind "$place" "$place" && mount -o remount,ro,bind "$place" || exit 99'
    script = f'place=$1; shift; {bind}; exec "$@"'
    return [*_unshared(), "sh", "-c", script, "sh", str(place), *map(str, command)]


def _unshared() -> list[str]:
    own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *own, "--mount"]


def _apart() -> list[str]:
    return [*_unshared(), "sh", "-c", 'mount -t tmpfs -o size=64k none /mnt && exec "$@"', "sh"]


def small_files(size: int) -> Any:
    """Makes every write beyond so many bytes of a file fail, as on a full disk; where nothing can be mounted."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit
