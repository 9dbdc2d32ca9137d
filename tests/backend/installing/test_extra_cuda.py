"""The extra for GPUs: what it asks for, and, where `make test-cuda` has installed it from scratch, what came."""

import ctypes
import importlib
import re
import tomllib
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[3]
EXTRA = "cuda13"
needs_extra = pytest.mark.skipif(find_spec("cupy") is None, reason="the extra 'cuda13': make test-cuda")


def declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [Requirement(text) for text in project["optional-dependencies"][EXTRA]]


def pins():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))


def test_every_library_that_programs_call_comes_with_the_extra_at_a_version_that_fits():
    wanted = {one.name: one.specifier for one in declared()}
    assert set(wanted) == {
        "cuda-bindings",
        "cupy-cuda13x",
        "nvidia-cublas",
        "nvidia-cuda-nvrtc",
        "nvidia-cuda-runtime",
        "nvidia-cudnn-cu13",
        "nvidia-cudnn-frontend",
        "nvmath-python",
    }
    pinned = pins()
    for name, specifier in wanted.items():
        assert pinned[name] in specifier, name
    for version, fits in {"1.18.0": False, "1.19.0": True, "1.26.0": True, "1.27.0": False}.items():
        assert (Version(version) in wanted["nvidia-cudnn-frontend"]) == fits


def test_the_versions_of_the_frontend_that_are_asked_for_are_those_that_are_taken():
    from eqsat.errors import BackendError
    from eqsat.runtime.cuda.libraries.cudnn_library import check_version

    (frontend,) = (one.specifier for one in declared() if one.name == "nvidia-cudnn-frontend")
    remedy = "pip install 'nvidia-cudnn-frontend" + ",".join(sorted(map(str, frontend), reverse=True)) + "'"
    for minor in range(15, 33):
        if Version(f"1.{minor}.0") in frontend:
            check_version(f"1.{minor}.0")
        else:
            with pytest.raises(BackendError, match=re.escape(remedy)):
                check_version(f"1.{minor}.0")


def closure(name, extras=()):
    """The distributions that one needs here, by name, itself among them."""
    left, found = [(name, tuple(extras))], {}
    while left:
        one, wanted = left.pop()
        if (one, wanted) in found:
            continue
        here = metadata.distribution(one)
        found[one, wanted] = here
        for requirement in map(Requirement, here.requires or []):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*wanted, "")):
                left.append((requirement.name.lower(), tuple(requirement.extras)))
    return {one.metadata["Name"].lower(): one for one in found.values()}


@needs_extra
def test_the_extra_brings_all_that_it_asks_for_at_the_pinned_versions_and_is_as_large_as_the_page_says():
    core = closure("eqsat")
    more = {name: one for name, one in closure("eqsat", (EXTRA,)).items() if name not in core}
    assert {one.name for one in declared()} <= set(more)
    pinned = pins()
    assert {name: one.version for name, one in more.items()} == {name: pinned[name] for name in more}
    size = sum(path.stat().st_size for one in more.values() for file in one.files for path in [one.locate_file(file)])
    page = (ROOT / "docs" / "installing.md").read_text(encoding="utf-8")
    (stated,) = re.findall(rf"\| `{EXTRA}` \|.*\| ([\d.]+) GB more", page)
    assert size / 1e9 == pytest.approx(float(stated), abs=0.05)


@needs_extra
def test_cublas_and_cudnn_are_there_to_be_loaded():
    lt = ctypes.CDLL(str(package_file("nvidia-cublas", "libcublasLt.so")))
    lt.cublasLtGetVersion.restype = ctypes.c_size_t
    assert lt.cublasLtGetVersion() >= 130000
    assert 91000 <= importlib.import_module("cudnn").backend_version() < 100000


@needs_extra
def test_kernels_of_cupys_in_float16_find_their_headers():
    """Under the root that CuPy takes for CUDA's."""
    nvrtc = importlib.import_module("cupy_backends.cuda.libs.nvrtc")
    root = importlib.import_module("cupy._environment").get_cuda_path()
    code = '#include <cuda_fp16.h>\nextern "C" __global__ void k(__half* x) { x[0] = __hadd(x[0], x[1]); }'
    program = nvrtc.createProgram(code, "k.cu", (), ())
    nvrtc.compileProgram(program, ("--gpu-architecture=sm_90", f"-I{root}/include"))
    assert nvrtc.getCUBIN(program)


def package_file(distribution, name):
    here = metadata.distribution(distribution)
    (path,) = (here.locate_file(file) for file in here.files if file.name.startswith(name))
    return path
