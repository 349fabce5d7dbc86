# `make` alone lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup tools browser run demo check test test-all test-long lint rows format soak bench screenshots lock sbom secrets clean

# What tests start by the hundred is compiled once.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
# Inside .venv, so that it goes with it.
STAMP := .venv/.installed
# A killed `make` takes what it started along: SIGTERM makes `zonectl up` stop everything in order.
GUARDED := exec setpriv --pdeathsig TERM --

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

setup: tools $(STAMP) ## .venv with zonectl in it; Java 17+ and etcd where they are missing

tools:
	@scripts/system-tools.sh

$(STAMP): requirements.lock pyproject.toml clients/python/pyproject.toml scripts/setup.sh
	@scripts/setup.sh
	@touch $@

browser: setup
	@scripts/system-tools.sh --browser

run: setup ## start three nodes in ./zonekeeper-data, run the demo, keep serving until Ctrl-C
	@$(GUARDED) $(BIN)/zonectl up --nodes 3 --data-dir zonekeeper-data --demo

demo: setup ## the same in a fresh directory; exit code 0 if everything was as said
	@$(GUARDED) scripts/demo.sh

# A file, or a group of files, is run by one worker; their order is in tests/fixtures/places.py.
PARALLEL := --dist loadfile --no-loadscope-reorder --durations=25
# What `make test` runs, and what `make test-all` does.
USUAL := not soak and not long and not thorough
ALL := not soak and not long
# Tests of servers mostly wait, so more run at once than there are processors.
WORKERS ?= 4

LINT := lint=$(BIN)/ruff check . && $(BIN)/ruff format --check .
TYPES := types=$(BIN)/mypy
PURE := tests/unit tests/property tests/datadriven tests/contract tests/linearizability

check: setup ## linters, types, size, and tests without servers
	@scripts/parts.sh "$(LINT)" "$(TYPES)" "house=$(BIN)/python scripts/house.py" \
		"tests=$(BIN)/pytest -q -m '$(USUAL) and not hosted' -n $(WORKERS) $(PARALLEL) $(PURE)"

test: setup browser ## linters, types, and tests that show each requirement and fault once
	@scripts/parts.sh "$(LINT)" "$(TYPES)" "tests=$(BIN)/pytest -q -m '$(USUAL)' -n $(WORKERS) $(PARALLEL)"

test-all: setup browser ## what every change must pass: the same, whole and in all variants
	@scripts/parts.sh "$(LINT)" "$(TYPES)" "tests=$(BIN)/pytest -q -m '$(ALL)' -n $(WORKERS) $(PARALLEL)"

test-long: setup ## the tests that build what they run: the previous release, other versions of etcd
	$(BIN)/pytest -q -m 'long and not soak' --durations=25

.PHONY: coverage
coverage: setup browser ## which lines and branches `make test-all` reaches; SOAK=1: and `make soak`
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q $(if $(SOAK),,-m '$(ALL)') -n $(WORKERS) $(PARALLEL)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

lint: setup ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

rows: setup ## docs/requirements.md, from the row markers of the tests
	$(BIN)/python -m tests.rows

format: setup ## rewrite the code the way ruff wants it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

simulate: setup ## one run in virtual time, as ARGS="control --seed 7"; ARGS=--help for all
	@$(BIN)/python -m simulator $(ARGS)

# The long runs, each a row of docs/soak.md: what it runs.
SOAK_simulated := -m soak tests/simulation tests/model tests/property tests/contract
SOAK_servers := -m soak tests/integration tests/linearizability tests/console
SOAK_installations := -m soak tests/e2e
SOAK_examples := tests/property tests/unit tests/linearizability/test_checker.py \
	tests/simulation/test_whole_checks.py tests/simulation/test_store_releases.py \
	tests/simulation/test_store_machine.py::TestStoreMachine

soak: soak-simulated soak-servers soak-installations soak-examples ## the long runs; their results go to docs/soak.md

soak-examples: export HYPOTHESIS_PROFILE := random
soak-%: setup browser
	$(BIN)/pytest -q --timeout 0 -n $(WORKERS) $(PARALLEL) --ledger $* $(SOAK_$*)

bench: setup browser ## the measurements
	$(BIN)/pytest -q -s --timeout 0 tests/bench/bench_*.py

screenshots: setup browser ## docs/screenshots, light and dark
	$(BIN)/python -m tests.console.screenshots

lock: $(STAMP) ## new versions in requirements.lock
	@scripts/lock.sh

sbom: ## what is shipped, as CycloneDX: dist/sbom.cdx.json
	@mkdir -p dist
	@python3 scripts/shipped.py sbom >dist/sbom.cdx.json

secrets: ## passwords for docker-compose.yml in ./secrets, made once
	@scripts/secrets.sh

clean: ## remove .venv and caches; data directories stay
	rm -rf .venv .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info \
		clients/python/build clients/python/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
