# `make demo` runs the main job; `make test` is what CI runs. Both make their own virtual environment in .venv.
# TORCH_INDEX=<url> adds a package index, for PyTorch's CPU build (see README, "Installing").

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	$(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))

.PHONY: demo test test-long run-tests lint clean

demo: $(VENV)/.demo
	$(BIN)/decider ask examples/ticket.json

# Types are checked on one core while the tests run on another; either failing fails both.
test: $(VENV)/.test
	@$(MAKE) --no-print-directory --jobs=2 lint run-tests

run-tests: $(VENV)/.test
	$(BIN)/python -m pytest -m "not long and not gpu" --durations=10

test-long: $(VENV)/.long
	$(BIN)/python -m pytest -m "long and not gpu" --durations=10 -s

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed; name one: make PYTHON=python3.12 demo")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing decider into $(VENV) (torch is the large part; minutes on a first run)"
	$(PIP) --editable .
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing decider and its test tools into $(VENV)"
	$(PIP) --editable '.[eval,tables,serve,test]'
	@touch $@

$(VENV)/.long: $(VENV)/.test
	@echo "Installing the compiler of kernels (250 MB or more to download)"
	$(PIP) --editable '.[kernels]'
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
