# `make demo`, `make test`: both set up .venv first if need be. See README.md.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help setup check demo demo-clean test test-fast lint format peers bench bundle clean

help:
	@echo "make demo       the whole path on real text of this machine (about 6 minutes on 2 cores)"
	@echo "make test       lint, types and all tests"
	@echo "make test-fast  the tests that take seconds"
	@echo "make lint       ruff and mypy"
	@echo "make peers      install the programs that benchmarks compare with, in .venv-peers"
	@echo "make bundle     dist/corpusmill.zip for spark-submit --py-files"

check:
	@$(PYTHON) tools/check_system.py

$(VENV)/.ready: pyproject.toml constraints.txt | check
	$(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV): a few minutes the first time"
	$(PIP) -c constraints.txt torch wheel
	$(PIP) -c constraints.txt -e '.[train,dev]'
	-$(BIN)/prep warm
	@touch $@

setup: $(VENV)/.ready

demo: setup
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python demo/run.py

demo-clean:
	rm -rf demo/corpus demo/out

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pytest -q --durations=15

test-fast: setup
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pytest -q -m "not slow"

bundle: setup
	$(BIN)/prep pyfiles dist/corpusmill.zip

.venv-peers/.ready: benchmarks/peers.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --disable-pip-version-check --quiet -r benchmarks/peers.txt
	@touch $@

peers: .venv-peers/.ready

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
