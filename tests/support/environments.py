"""Virtual environments of a few packages, linked from those that are installed here: they need no network."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
#: The files of the repository that a wheel is built from.
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "eqsat")
_COMPILED = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info")


def required(names: Iterable[str]) -> dict[str, metadata.Distribution]:
    """The installed distributions of these names, with all that they require here without an extra."""
    known: dict[str, metadata.Distribution] = {}
    left = [canonicalize_name(name) for name in names]
    while left:
        name = left.pop()
        if name in known:
            continue
        known[name] = metadata.distribution(name)
        for one in map(Requirement, known[name].requires or ()):
            if one.marker is None or one.marker.evaluate({"extra": ""}):
                left.append(canonicalize_name(one.name))
    return known


def core_requirements() -> list[str]:
    """The names of the packages that eqsat needs without any extra."""
    return [r.name for r in map(Requirement, metadata.requires("eqsat") or ()) if "extra" not in str(r.marker or "")]


def linked_environment(folder: Path, names: Iterable[str]) -> Path:
    """The Python of a new environment that has these distributions and those they require, and no others."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    for one in required(names).values():
        for top in {Path(file).parts[0] for file in one.files or ()} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(one.locate_file(top))))
    return folder / "bin" / "python"


def copied_sources(folder: Path) -> Path:
    """The files that a wheel is built from, copied to a new folder, so that nothing is written into the repository."""
    folder.mkdir(parents=True)
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=_COMPILED)
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def too_old() -> bool:
    """True where the setuptools that is here cannot build the wheel."""
    try:
        return int(metadata.version("setuptools").partition(".")[0]) < 77
    except metadata.PackageNotFoundError:
        return True


def build(sources: Path, kind: str, folder: Path) -> Path:
    """A wheel of the sources, "wheel" or "editable", built by setuptools as pip has it built."""
    folder.mkdir(parents=True, exist_ok=True)
    code = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(folder)!r}))"
    built = subprocess.run([sys.executable, "-c", code], cwd=sources, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder / built.stdout.splitlines()[-1]


def install(python: Path, wheel: Path) -> None:
    """Install a wheel into an environment by the pip that is here."""
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-index", "--no-deps", "--quiet"]
    installed = subprocess.run([*pip, str(wheel)], capture_output=True, text=True)
    assert installed.returncode == 0, installed.stderr


def python(program: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A run of the Python of an environment, which sees nothing of the repository."""
    others = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "EQSAT", "VIRTUAL_ENV"))}
    own = {"HOME": str(cwd), "XDG_CACHE_HOME": str(cwd / "cache")}
    return subprocess.run([str(program), *arguments], cwd=cwd, env=others | own, capture_output=True, text=True)
