"""A wheel of oneMKL as `pip` leaves it, whose library is a plain one; and runs of Python that find one or none."""

import os
import subprocess
import sys
from pathlib import Path

from eqsat.runtime.c.toolchain import toolchain

SOURCE = Path(__file__).with_suffix(".c")
ROOT = Path(__file__).parents[2]


def install(folder, version="2026.2.0", *, parts=("libmkl_rt.so.3", "libmkl_core.so.3"), interface=0):
    """Put the wheel into a folder; return the folder that Python finds it in. `parts` are files that are there."""
    site, libraries = folder / "lib" / "python3" / "site-packages", folder / "lib"
    about = site / f"mkl-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: mkl\nVersion: {version}\n")
    listed = ("libmkl_rt.so.3", "libmkl_core.so.3")
    (about / "RECORD").write_text("".join(f"../../{name},,\n" for name in listed) + f"{about.name}/METADATA,,\n")
    code = toolchain().compiled(SOURCE.read_text(), (f"-DINTERFACE={interface}",))
    for name in parts:
        (libraries / name).write_bytes(code)
    return site


def run_with(site, script, *arguments, cache):
    """The lines that a script prints in a new process, where wheels are found in `site` too, if it is not None."""
    folders = [str(ROOT), *([] if site is None else [str(site)]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders), "EQSAT_TUNING_CACHE": str(cache)}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert not done.returncode, done.stderr
    return done.stdout.splitlines()
