"""Packages that extras of eqsat install: whether they are here, asked before work that would end without them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from types import MappingProxyType

from eqsat.errors import MissingExtraError

#: The extra that installs each package, and the part of eqsat that needs it.
EXTRAS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "anywidget": ("explore", "widgets"),
        "igraph": ("explore", "laying out graphs on pages"),
        "islpy": ("poly", "the judge of schedules"),
        "matplotlib": ("plot", "plots"),
        "mkl": ("mkl", "products of matrices by oneMKL"),
        "pandas": ("explore", "tables"),
    }
)


def is_installed(package: str) -> bool:
    """True where a package is here; nothing is imported."""
    try:
        return find_spec(package) is not None
    except ImportError:
        return False
    except ValueError:  # of a module that something put in its place
        return True


def require(package: str) -> None:
    """MissingExtraError, with the line that installs it, unless a package of an extra is here; nothing is imported."""
    if not is_installed(package):
        raise missing(package)


def missing(package: str) -> MissingExtraError:
    """The error for a package of an extra that is not here."""
    extra, purpose = EXTRAS[package]
    return MissingExtraError(
        f"{package} is not installed", expected=f"it for {purpose}", remedy=f"pip install 'eqsat[{extra}]'"
    )
