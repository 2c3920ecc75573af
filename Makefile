# Two commands matter: `make run` and `make test`. Both build what they need.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help run test check bench faults clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-7s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Turnstate needs Python 3.11 or newer; set PYTHON=…" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "cannot create $(VENV): on Debian, apt-get install python3-venv" >&2; exit 2; }
	@echo "installing into $(VENV) …"
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

run: $(STAMP) ## see it work: a long conversation that survives everything
	@$(BIN)/turnstate demo

test: $(STAMP) check ## everything: lint, types, and all tests
	@$(BIN)/pytest

check: $(STAMP) ## lint, types, layers and public names
	@$(BIN)/ruff format --check --quiet . || { echo "run: $(BIN)/ruff format ." >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/pytest -n 0 tests/unit/test_layers.py tests/unit/test_public_names.py

bench: $(STAMP) ## measure, beside peers and raw limits in the same run
	@$(BIN)/python -m bench

faults: $(STAMP) ## every fault at length, and the properties over many times the examples
	@TURNSTATE_THOROUGH=10 $(BIN)/pytest -o timeout=3600 tests/faults
	@TURNSTATE_THOROUGH=10 $(BIN)/pytest -o timeout=3600 tests/contract/test_stores_agree.py tests/unit/stores tests/properties

clean: ## remove what the commands above made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
