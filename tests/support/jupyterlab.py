"""A JupyterLab of its own: its settings, its notebooks and its kernels live in one folder."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Seconds in which a server answers.
START = 60.0
#: Nothing is asked of a network, and every cell is in the page, also those that are scrolled away.
CONFIG = """
c.LabApp.news_url = None
c.LabApp.check_for_updates_class = "jupyterlab.NeverCheckForUpdate"
"""
SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false"},
}


@contextmanager
def jupyterlab(folder: Path) -> Iterator[str]:
    """The address of a JupyterLab over `folder`/notebooks, with `{}` for the name of a notebook."""
    home, token, port = folder / "home", secrets.token_hex(16), _free_port()
    for name, values in SETTINGS.items():
        file = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values), encoding="utf-8")
    (home / "jupyter_lab_config.py").write_text(CONFIG, encoding="utf-8")
    notebooks = folder / "notebooks"
    notebooks.mkdir(exist_ok=True)
    words = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.port_retries=0"]
    words += [f"--ServerApp.port={port}", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={notebooks}"]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            words, env=_surroundings(home), cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
        try:
            _await(server, f"http://127.0.0.1:{port}/api/status?token={token}", folder / "log")
            yield f"http://127.0.0.1:{port}/doc/tree/{{}}?token={token}"
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(timeout=30)


def _surroundings(home: Path) -> dict[str, str]:
    places = {
        "HOME": home,
        "JUPYTER_CONFIG_DIR": home,
        "JUPYTER_RUNTIME_DIR": home / "runtime",
        "JUPYTER_DATA_DIR": home / "data",
        "JUPYTERLAB_SETTINGS_DIR": home / "settings",
        "JUPYTERLAB_WORKSPACES_DIR": home / "workspaces",
        "EQSAT_COST_TABLE": home / "costs.sqlite3",
        "EQSAT_EVIDENCE": home / "evidence",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    return {**os.environ, **{name: str(place) for name, place in places.items()}}


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _await(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    end = time.monotonic() + START
    while True:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            assert server.poll() is None and time.monotonic() < end, log.read_text(errors="replace")
            time.sleep(0.2)
