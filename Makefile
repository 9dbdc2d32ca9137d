# The two commands are `make demo` and `make test`; both build .venv first, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint benchmarks gpu clean

demo: $(READY)
	$(BIN)/python -m benchmarks.demo

test: $(READY)
	$(BIN)/python -m pytest -n 2 -q

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

benchmarks: $(READY)
	$(BIN)/python -m benchmarks

# On a machine with an NVIDIA GPU: every figure that waits for one.
gpu: $(READY)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[cuda13]'
	$(BIN)/python -m benchmarks.gpu

clean:
	rm -rf $(VENV)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "eqsat needs Python 3.11 or later; try make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@
