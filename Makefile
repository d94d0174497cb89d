# Needs make and Python 3.10 or later; everything else is set up into .venv on first use.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3.10 python3 python; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
HEADERS := build/cupti-headers

.DEFAULT_GOAL := help
.PHONY: help run once test lint types check bench score docs picture pages clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 18

run: $(STAMP) ## See it work: collector, agent and recordings of a real GPU on loopback (Ctrl-C ends it)
	@$(BIN)/replaywatch demo

once: $(STAMP) ## The same, ending by itself when the verdicts are there
	@$(BIN)/replaywatch demo --once

test: $(DEV_STAMP) $(HEADERS)/.fetched ## Run the tests
	@$(BIN)/python -m pytest

lint: $(DEV_STAMP) ## Check style
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(DEV_STAMP) ## Check types
	@$(BIN)/mypy

check: lint types test ## Everything that must be green before a commit

bench: $(DEV_STAMP) ## Measure speed and memory, as ratios in one run
	@for b in trace estimate agent ingest judge hook; do $(BIN)/python tests/bench/bench_$$b.py || exit; done

score: $(DEV_STAMP) ## Precision, recall, errors over the labelled corpus, fleets and public cases
	@$(BIN)/python tests/score/score.py

docs: $(DEV_STAMP) ## Build the documentation's site
	@$(BIN)/python docs/_generate/pages.py && NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

picture: $(DEV_STAMP) ## Take the pictures of the page that README and docs show (needs Chromium)
	@$(BIN)/python docs/_generate/picture.py

pages: $(DEV_STAMP) ## Write generated pages, the chart's README, the images' pins
	@$(BIN)/python docs/_generate/pages.py && $(BIN)/python deploy/helm/describe.py && $(BIN)/python deploy/images/pin.py

clean: ## Remove what was built
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.10 or later was not found; install it or pass PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }

$(STAMP): $(VENV)/bin/python pyproject.toml
	@echo "setting up $(VENV) (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[server]'
	@touch $@

$(DEV_STAMP): $(VENV)/bin/python pyproject.toml
	@echo "setting up $(VENV) with the developer's tools (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ $(STAMP)

# What the tracer's own declarations of CUPTI are held against; asked for again each time while there is no network.
$(HEADERS)/.fetched: tests/tracer/fetch_headers.py | $(DEV_STAMP)
	@echo "fetching CUPTI's headers into $(HEADERS) (once)"
	@if $(BIN)/python $< $(HEADERS); then touch $@; else echo "the tests of the tracer's offsets are skipped"; fi
