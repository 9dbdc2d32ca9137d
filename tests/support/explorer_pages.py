"""Fixtures of pages of runs, opened in a headless Chromium; imports wait for the tests that need them."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def browser():
    from tests.support.browser import chromium

    with chromium() as running:
        yield running


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """Pages of the runs, written once."""
    from eqsat.explorer.page.page import page
    from tests.support import run_views

    folder = tmp_path_factory.mktemp("pages")
    views = {
        "small": run_views.small(),
        "hostile": run_views.hostile(),
        "medium": run_views.large(layers=60),
        "large": run_views.large(),
    }
    for name, view in views.items():
        (folder / f"{name}.html").write_text(page(view), encoding="utf-8")
    return folder


@pytest.fixture
def visit(browser, files):
    """Opens a file; afterwards nothing may have gone wrong in it, and nothing but it may have been asked for."""
    contexts, wrong, asked, refused = [], [], [], []

    def call(name, address="", **settings):
        context = browser.new_context(**{"viewport": {"width": 1400, "height": 850}, **settings})
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(30_000)
        tab.on("console", lambda message: wrong.append(f"{message.type}: {message.text}"))
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("dialog", lambda dialog: (wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
        context.on("request", lambda request: asked.append(request.url))
        context.on("requestfailed", lambda request: refused.append((request.url, request.failure)))
        place = files / f"{name}.html"
        tab.goto(place.as_uri() + address)
        if settings.get("java_script_enabled", True):
            tab.wait_for_selector("[data-ready]", state="attached")
        tab.wrong, tab.asked, tab.refused = wrong, asked, refused
        return tab

    yield call
    for context in contexts:
        context.close()
    assert wrong == []
    assert {url.partition("#")[0] for url in asked} <= {file.as_uri() for file in files.iterdir()}
