"""The folder of the results that eqsat can compute again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """The folder of eqsat in the cache of the user; where the user has no home, a path at which nobody can make one.

    Whoever writes there does without files then, as where a home can only be read.
    """
    import platformdirs  # not needed where variables name all files

    try:
        folder = Path(platformdirs.user_cache_dir("eqsat"))
    except RuntimeError:  # neither a variable nor the system knows a home
        return Path(os.devnull) / "eqsat"
    return folder if folder.is_absolute() else Path(os.devnull) / "eqsat"
