# One door: make up, make test, make check, make bench. A fresh machine needs Python 3.11 and make.
# The system's own, if it is new enough: distributions compile it with profile-guided optimizations, which make everything
# here 10 to 20 % faster, and version managers mostly do not.
SYSTEM_PYTHON := /usr/bin/python3
PYTHON ?= $(shell $(SYSTEM_PYTHON) -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $(SYSTEM_PYTHON) || echo python3)
VENV := .venv
BIN := $(VENV)/bin
UP ?=
# 0: the cluster alone, without the demo.
DEMO ?= 1

# Compiled once, here and as it changes: a machine that is set not to would compile all of it at each start.
unexport PYTHONDONTWRITEBYTECODE

# How long `make faults` and `make fuzz` go on, and what they begin with: SEED=n repeats a run.
MINUTES ?= 10
SEED ?=

.PHONY: env up test pytest test-long test-console simulate explore check docs bench faults fuzz lock clean

env: $(VENV)/.made

$(VENV)/.made: requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet uv==0.13.7
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip sync --quiet --compile-bytecode --require-hashes requirements.lock
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --no-deps --editable .
	@$(BIN)/python -m compileall -q src
	@touch $@

up: env
	@exec $(BIN)/penstock up --data ./data $(if $(filter 0,$(DEMO)),--no-demo) $(UP)

# The checks beside the tests: mypy keeps one core busy for a minute.
test: env
	@$(MAKE) --no-print-directory --jobs 2 check pytest

# Three on two cores: much of it waits for processes that are killed, stopped and started. If one of the three crashes, the
# run ends and says in which test: replaced, it may leave the others waiting for ever.
pytest: env
	@$(BIN)/python -m pytest -n 3 --dist loadgroup --max-worker-restart 0 -m "not long"

test-long: env
	@$(BIN)/python -m pytest -m long

# The console in a real browser, which is for developers' machines: playwright is not in the lock file, and drives the
# system's Chromium (Debian: apt-get install chromium), since its own cannot be had everywhere.
test-console: env
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet playwright==1.65.0
	@$(BIN)/python -m pytest tests/e2e/test_console.py

# Clusters in simulated time: SEEDS fresh ones after those that failed once, or the one SEED, told in full.
simulate: env
	@$(BIN)/python -m tests.simulation.run $(if $(SEED),--seed $(SEED),--kept --seeds $(or $(SEEDS),20))

# Properties on examples that nobody has seen, and on more of them.
explore: env
	@$(BIN)/python -m pytest -n 2 --hypothesis-profile explore --timeout 1200 tests/unit

check: env
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

docs: env
	@$(BIN)/python -m penstock.base.settings > docs/settings.md
	@$(BIN)/python -m penstock.broker.support

bench: env
	@$(BIN)/python -m bench

faults: env
	@$(BIN)/python -m tests.e2e.faults.run $(MINUTES) $(SEED)

fuzz: env
	@$(BIN)/python -m tests.fuzz.run $(MINUTES) $(SEED)

lock:
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
		--python-version 3.11 --extra dev --extra spark pyproject.toml --output-file requirements.lock

clean:
	@rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
