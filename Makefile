# The two commands are `make demo` and `make test`; both build .venv first, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Tests start Python some hundred times, which takes half as long where compiled modules are kept.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-long test-frameworks test-cuda test-install test-mkl test-torch test-zig browser lint benchmarks gpu docs notebooks clean

demo: $(READY)
	$(BIN)/python -m benchmarks.demo

test: $(READY) browser
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m "not long"

# The tests that take two seconds or more each: sweeps over all rules, operators and programs, and the pages that take long.
test-long: $(READY) browser
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m long

# The first hour for real: the wheel, and all that it requires from the package index, in a new environment.
INSTALLED := build/installed
test-install: $(READY)
	rm -rf $(INSTALLED) build/wheels
	$(PYTHON) -m venv $(INSTALLED)
	$(INSTALLED)/bin/python -m pip wheel --quiet --no-deps -w build/wheels .
	$(INSTALLED)/bin/python -m pip install --quiet -c constraints.txt build/wheels/*.whl
	FIRST_HOUR_PYTHON=$(CURDIR)/$(INSTALLED)/bin/python $(BIN)/python -m pytest -q tests/backend/installing/test_first_hour.py

# Tests of the doors from PyTorch, in an environment of their own with torch's wheel for CPUs; the index of these wheels is
# asked where the usual one has none.
TORCH := .venv-torch
test-torch: $(TORCH)/.ready
	$(TORCH)/bin/python -m pytest -q tests/backend/pytorch tests/backend/installing tests/backend/docs/test_troubleshooting.py eqsat/pytorch eqsat/language/pytorch

$(TORCH)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(TORCH)
	$(TORCH)/bin/python -m pip install --quiet -c constraints.txt 'torch==2.13.0+cpu' \
	|| $(TORCH)/bin/python -m pip install --quiet -c constraints.txt --extra-index-url https://download.pytorch.org/whl/cpu 'torch==2.13.0+cpu'
	$(TORCH)/bin/python -m pip install --quiet -c constraints.txt -e '.[torch,testing]' pytest
	@touch $@

# Models of JAX, Keras, TensorFlow and scikit-learn through their exporters, in an environment of their own (2 GB).
FRAMEWORKS := .venv-frameworks
test-frameworks: $(FRAMEWORKS)/.ready
	TF_CPP_MIN_LOG_LEVEL=3 $(FRAMEWORKS)/bin/python -m pytest -q tests/backend/frameworks

$(FRAMEWORKS)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(FRAMEWORKS)
	$(FRAMEWORKS)/bin/python -m pip install --quiet -c constraints.txt -e '.[testing]' pytest \
	  flax 'jax[cpu]' jax2onnx keras scikit-learn skl2onnx tensorflow-cpu tf2onnx
	@touch $@

# Tests against CuPy, cuBLASLt, cuDNN and NVRTC themselves, which need no GPU for that: the very extra, from scratch, in an
# environment of its own (2.5 GB).
CUDA := .venv-cuda
test-cuda: $(CUDA)/.ready
	$(CUDA)/bin/python -m pytest -q tests/backend/installing/test_extra_cuda.py tests/backend/runtime/cuda/test_cuda_libraries.py \
	  tests/backend/runtime/cuda/test_cuda_cudnn.py tests/backend/runtime/cuda/test_cuda_bytes.py \
	  tests/backend/runtime/cuda/test_cuda_interfaces.py tests/backend/runtime/cuda/test_cuda_planner.py

$(CUDA)/.ready: pyproject.toml constraints.txt
	rm -rf $(CUDA)
	$(PYTHON) -m venv $(CUDA)
	$(CUDA)/bin/python -m pip install --quiet -c constraints.txt -e '.[cuda13,testing]' pytest
	@touch $@

# Tests against oneMKL itself, whose products generated C calls, in an environment of their own (0.7 GB).
MKL := .venv-mkl
test-mkl: $(MKL)/.ready
	$(MKL)/bin/python -m pytest -q tests/backend/runtime/c/test_c_mkl.py tests/backend/runtime/c/test_c_libraries.py

$(MKL)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(MKL)
	$(MKL)/bin/python -m pip install --quiet -c constraints.txt -e '.[mkl,testing]' pytest
	@touch $@

# Generated C compiled by the package ziglang, a compiler in a wheel, where the path leads to no other: in an environment of
# its own (1.3 GB, the wheel 0.1 GB of it).
ZIG := .venv-zig
test-zig: $(ZIG)/.ready
	env -u CC PATH= $(CURDIR)/$(ZIG)/bin/python -m pytest -q tests/backend/runtime/c/test_c_zig.py tests/backend/runtime/c/test_c_kernels.py \
	  tests/backend/runtime/c/test_c_programs.py tests/backend/runtime/c/test_c_forms.py tests/backend/runtime/c/test_c_comprehensions.py

$(ZIG)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(ZIG)
	$(ZIG)/bin/python -m pip install --quiet -c constraints.txt -e '.[c,testing]' pytest
	@touch $@

# A browser for the tests of pages: Debian's, where whoever runs this may install it.
browser:
	@command -v chromium >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && apt-get install -y -q chromium >/dev/null 2>&1; } \
	|| { [ "$$(id -u)" = 0 ] && apt-get update -q >/dev/null 2>&1 && apt-get install -y -q chromium >/dev/null 2>&1; } \
	|| echo "Debian's package chromium is missing and cannot be installed here: tests in a browser are skipped"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

benchmarks: $(READY)
	$(BIN)/python -m benchmarks

# The pages as a site, in build/docs.
docs: $(READY)
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs

# Notebooks with their outputs, from the .py files they are written as.
notebooks: $(READY)
	$(BIN)/python -m notebooks.pairing

# On a machine with an NVIDIA GPU: every figure that waits for one.
gpu: $(READY)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[cuda13]'
	$(BIN)/python -m eqsat doctor --json benchmarks/results/doctor.json
	$(BIN)/python -m benchmarks.gpu

clean:
	rm -rf $(VENV) $(TORCH) $(FRAMEWORKS) $(CUDA) $(MKL) $(ZIG)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "eqsat needs Python 3.11 or later; try make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@
