"""Registries: names of eqsat's own, those of installed packages, and packages that fail."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from eqsat.errors import PluginError, UsageError
from eqsat.system.plugins import Registry
from tests.support.distributions import install

ROOT = Path(__file__).parents[3]
GROUP = "eqsat.numbers"


def checked(name, given):
    if not isinstance(given, int):
        raise UsageError(f"{given!r} is no number", expected="a whole number")
    return given


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder on the path of modules, with a package that has one entry and one with three that fail."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "good_numbers.py").write_text("seven = 7\n")
    (tmp_path / "broken_numbers.py").write_text("raise RuntimeError('no licence\\nfor this machine')\n")
    (tmp_path / "wordy_numbers.py").write_text("eight = 'eight'\n")
    install(tmp_path, "good-numbers", {GROUP: {"seven": "good_numbers:seven"}})
    install(
        tmp_path,
        "bad-numbers",
        {GROUP: {"nine": "broken_numbers:nine", "eight": "wordy_numbers:eight", "ten": "good_numbers:ten"}},
    )
    yield tmp_path
    for name in ("good_numbers", "broken_numbers", "wordy_numbers"):
        sys.modules.pop(name, None)


def numbers():
    return Registry(GROUP, {"one": 1}, checked)


@pytest.mark.usefixtures("site")
def test_names_of_packages_come_after_eqsats_own():
    registry = numbers()
    assert list(registry) == ["one", "eight", "nine", "seven", "ten"]
    assert len(registry) == 5
    assert (registry["one"], registry["seven"], registry.get("two")) == (1, 7, None)
    assert ("nine" in registry, "two" in registry, None in registry) == (True, False, False)
    with pytest.raises(KeyError, match="two"):
        registry["two"]


@pytest.mark.usefixtures("site")
def test_a_package_is_imported_when_its_own_name_is_looked_up_and_not_before():
    registry = numbers()
    assert "seven" in list(registry)
    assert registry["one"] == 1
    assert "good_numbers" not in sys.modules
    assert registry["seven"] == 7
    assert "good_numbers" in sys.modules


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "nine",
            "bad-numbers 1.0: 'nine' of eqsat.numbers cannot be imported: RuntimeError: no licence\n"
            "  expected an object at broken_numbers:nine\n"
            "  install the package anew, or uninstall it",
        ),
        (
            "ten",
            "bad-numbers 1.0: 'ten' of eqsat.numbers cannot be imported: AttributeError: module 'good_numbers' has no "
            "attribute 'ten'\n"
            "  expected an object at good_numbers:ten\n"
            "  install the package anew, or uninstall it",
        ),
        (
            "eight",
            "bad-numbers 1.0: 'eight' of eqsat.numbers is refused: 'eight' is no number\n"
            "  expected a whole number\n"
            "  report it to the authors of the package, or uninstall it",
        ),
    ],
)
def test_a_package_that_fails_is_named_and_the_others_work(name, message):
    registry = numbers()
    with pytest.raises(PluginError) as caught:
        registry[name]
    assert str(caught.value) == message
    assert registry["seven"] == 7
    with pytest.warns(RuntimeWarning, match="bad-numbers 1.0: '(eight|nine|ten)' of eqsat.numbers"):
        assert registry.usable() == {"one": 1, "seven": 7}


def test_a_name_that_two_packages_have_is_refused_with_both(site):
    install(site, "more-numbers", {GROUP: {"seven": "good_numbers:seven"}})
    with pytest.raises(PluginError) as caught:
        numbers()["seven"]
    assert str(caught.value) == (
        "good-numbers 1.0, more-numbers 1.0: 'seven' of eqsat.numbers is defined twice\n"
        "  expected one package for a name\n"
        "  uninstall all of them but one"
    )


def test_a_name_of_eqsats_own_stays_its_own_and_the_package_is_named(site):
    install(site, "greedy-numbers", {GROUP: {"one": "good_numbers:seven"}})
    registry = numbers()
    assert registry["one"] == 1
    with pytest.warns(RuntimeWarning, match="greedy-numbers 1.0: eqsat.numbers has 'one', which is eqsat's own"):
        assert list(registry).count("one") == 1
    assert registry["one"] == 1


def test_names_of_eqsats_own_are_looked_up_without_reading_what_is_installed():
    code = (
        "import importlib.metadata as metadata, eqsat\n"
        "def read(**_): raise AssertionError('entry points were read')\n"
        "metadata.entry_points = read\n"
        "from eqsat.costs.devices.device import Device\n"
        "from eqsat.extract import extractor_of\n"
        "from eqsat.runtime.backend import select\n"
        "Device.of('nvidia-h200'), extractor_of('ilp'), select('numpy'), select()\n"
        "from eqsat.system import plugins\n"
        "assert plugins.entry_points is read\n"
    )
    made = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr


def test_every_registry_of_plug_ins_refuses_an_object_of_another_kind(tmp_path):
    (tmp_path / "odd.py").write_text("thing = 3\n")
    groups = {f"eqsat.{kind}": {"odd": "odd:thing"} for kind in ("devices", "extractors", "backends")}
    install(tmp_path, "odd-parts", groups)
    code = (
        "from eqsat.costs.devices.device import Device\n"
        "from eqsat.errors import EqsatError\n"
        "from eqsat.extract import extractor_of\n"
        "from eqsat.runtime.backend import select\n"
        "for look in (Device.of, extractor_of, select):\n"
        "    try:\n"
        "        look('odd')\n"
        "    except EqsatError as error:\n"
        "        print(error)\n"
    )
    path = os.pathsep.join((str(ROOT), str(tmp_path)))
    made = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    assert made.stdout.count("odd-parts 1.0: 'odd' of eqsat.") == 3
    for kind in ("3 is no device", "3 is no extractor", "3 is no backend"):
        assert kind in made.stdout
