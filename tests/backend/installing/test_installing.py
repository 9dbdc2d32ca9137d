"""Installed from a wheel, from the sources in place, and not at all: what a new user's first script meets."""

import zipfile

import pytest

from tests.support import environments as env

pytestmark = pytest.mark.skipif(env.too_old(), reason="wheels are built by setuptools 77, of the extra 'dev'")

SCRIPT = """
import eqsat
g = eqsat.Graph("twice")
x = g.input("x", (2, 3))
g.output("y", eqsat.relu(x + x))
print(eqsat.__file__)
print(eqsat.optimize(g, measure=False).report)
"""


@pytest.fixture(scope="session")
def clone(tmp_path_factory):
    """The repository as `git clone` leaves it: in a folder named eqsat."""
    return env.copied_sources(tmp_path_factory.mktemp("beside") / "eqsat")


@pytest.fixture(scope="session")
def wheel(clone, tmp_path_factory):
    return env.build(clone, "wheel", tmp_path_factory.mktemp("wheels"))


@pytest.fixture
def environment(tmp_path):
    """The Python of a fresh environment that has the packages eqsat needs, and no extra."""
    return env.linked_environment(tmp_path / "environment", env.core_requirements())


def beside(clone, name):
    """A script in the folder that the repository lies in."""
    (clone.parent / name).write_text(SCRIPT)
    return name


def test_a_wheel_holds_every_file_of_the_package(wheel):
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("eqsat/")}
    files = (p for p in (env.ROOT / "eqsat").rglob("*") if p.is_file() and p.suffix != ".pyc")
    assert packed == {str(p.relative_to(env.ROOT)) for p in files}


def test_a_script_beside_the_repository_runs_with_the_wheel(wheel, clone, environment):
    env.install(environment, wheel)
    ran = env.python(environment, beside(clone, "by_wheel.py"), cwd=clone.parent)
    assert ran.returncode == 0, ran.stderr
    assert "site-packages" in ran.stdout.splitlines()[0]


def test_a_script_beside_the_repository_runs_with_an_editable_install(clone, environment, tmp_path):
    env.install(environment, env.build(clone, "editable", tmp_path / "editable"))
    ran = env.python(environment, beside(clone, "in_place.py"), cwd=clone.parent)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[0] == str(clone / "eqsat" / "__init__.py")


@pytest.mark.parametrize(
    "arguments",
    [["-c", "import eqsat; eqsat.optimize"], ["-c", "from eqsat import optimize"], ["-m", "eqsat"]],
    ids=["attribute", "from", "module"],
)
def test_what_python_says_where_nothing_is_installed_is_explained(clone, environment, arguments):
    """The folder is then a namespace package, which no file in it can change."""
    ran = env.python(environment, *arguments, cwd=clone.parent)
    assert ran.returncode != 0
    message = ran.stderr.splitlines()[-1].partition(": ")[2]
    page = (env.ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    assert message in " ".join(page.split())


def test_an_environment_without_extras_has_none_of_their_packages(environment):
    """The tests of this folder prove nothing where one could be imported."""
    code = "import importlib.util as u, sys; print([m for m in sys.argv[1:] if u.find_spec(m)])"
    extras = ["torch", "transformers", "onnxscript", "hypothesis", "pandas", "matplotlib", "igraph", "distributed"]
    ran = env.python(environment, "-c", code, *extras, "pytest", "nbclient", "cuda", cwd=environment.parent)
    assert ran.stdout.strip() == "[]", ran.stderr
