# Two commands: `make book` and `make test`. Everything else is a variation of these.
SHELL := /bin/bash
PYTHON ?= python3
PROFILE ?= quick
PORT ?= 8000
BIN := .venv/bin
RUN := "$(CURDIR)/$(BIN)/python"
WORKERS ?= 2
export PROFILE

.DEFAULT_GOAL := help
.PHONY: help setup book test test-extended check confirm bench serve search sweep pdf clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

# uv does not read pip's configuration: a local wheel folder named there is passed on (empty when unset).
# torch's CPU build: UV_TORCH_BACKEND=cpu make book
INSTALL = UV_FIND_LINKS="$${UV_FIND_LINKS:-$$($(BIN)/python -m pip config get global.find-links 2>/dev/null || echo $$PIP_FIND_LINKS)}" \
  $(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt -e

.venv/.installed: pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) not found; Python 3.11 or newer is needed (PYTHON=... names another)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $(PYTHON) is older than 3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.9
	$(INSTALL) ".[book,test]"
	@touch $@

setup: .venv/.installed  ## virtual environment, install, compiled kernels
	@$(RUN) -m implicit_models.kernels

book: setup  ## regenerate the notebooks that changed and build the HTML book (PROFILE=quick|full)
	@$(RUN) -m doit -n $(WORKERS) book

test: setup  ## the tests of what a user relies on, in less than eight minutes
	@OMP_NUM_THREADS=1 $(RUN) -m pytest -n $(WORKERS) --dist worksteal -m "not extended"

test-extended: setup  ## the other tests: the built book in a browser, Ray, killed workers, studies, reruns
	@OMP_NUM_THREADS=1 $(RUN) -m pytest -n $(WORKERS) --dist worksteal -m extended

.venv/.checkers: .venv/.installed
	$(INSTALL) ".[dev]"
	@touch $@

check: .venv/.checkers  ## lint, format, types and the direction of imports, in less than a minute
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) -m mypy
	@$(BIN)/lint-imports --no-cache --no-logo
	@$(RUN) -m reproduction.book.pages --check

confirm: setup  ## carry full results over a change of the code, where quick runs before and after it are identical
	@$(RUN) -m reproduction.book.confirm $(NAMES) --workers $(WORKERS)

.venv/.peers: .venv/.installed
	$(INSTALL) ".[bench]"
	@touch $@

bench: setup .venv/.peers  ## every benchmark, peers side by side; results under benchmarks/results/
	@failed=; for area in $$(cd benchmarks && grep -l '^    harness.main' *.py | sed 's/\.py//'); do \
	  $(RUN) -m benchmarks.$$area --json benchmarks/results/$$area.json || failed="$$failed $$area"; done; \
	test -z "$$failed" || { echo "make bench: checks failed in:$$failed"; exit 1; }

serve: book  ## build, then serve the book on 127.0.0.1:PORT (default 8000)
	$(RUN) -m http.server $(PORT) --bind 127.0.0.1 --directory book/_build/html

search: setup  ## search hyper-parameters in distribution (long; not part of the book's build)
	$(RUN) -m reproduction.tools.search

export NOTEBOOK GRID
sweep: setup  ## run a notebook over a grid: NOTEBOOK=ch5_identity GRID="seeds=[[1],[2]] epochs_scale=[.5,1.]" [ADDRESS=ray]
	@$(RUN) -m reproduction.book.sweep "$$NOTEBOOK" "$$GRID" --profile $(PROFILE) --workers $(WORKERS) $(if $(ADDRESS),--address "$(ADDRESS)")

pdf: book  ## the whole book as one PDF, printed by a Chromium on the path (or CHROMIUM=...)
	@$(RUN) -m reproduction.tools.print_book

clean:  ## remove everything that the build made, the virtual environment included
	rm -rf .venv book/_executed book/_generated book/_build book/conf.py .doit.db* .pytest_cache .hypothesis .cache .confirm
	@git worktree prune
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
