# Every target sets up .venv first when that is needed; only Python 3.11+ (with venv) and make have to be there.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LOG := $(VENV)/install.log
# whether this machine has more than x86-64-v3, so that capping it to that makes a difference
WIDER := $(BIN)/python -c 'from searchlab.targets import detect; raise SystemExit(detect().vector_bits <= 256)'

.DEFAULT_GOAL := help
.PHONY: help quickstart test lint format bench slow clean

help: ## print this list
	@echo "searchlab: make <target>"
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do printf '  %-12s %s\n' "$$name" "$$text"; done

quickstart: $(READY) ## a small experiment on this machine, its leaderboard and its report
	@$(BIN)/searchlab run experiments/quickstart.yaml -o runs/quickstart
	@$(BIN)/searchlab report runs/quickstart

test: export OMP_NUM_THREADS = 1
test: export OPENBLAS_NUM_THREADS = 1
test: export MKL_NUM_THREADS = 1
# Tests start hundreds of processes, each of which would compile our sources again where this is set.
test: export PYTHONDONTWRITEBYTECODE =
test: lint ## lint, check types, run the tests
	@echo "tests (pytest)"
	@$(BIN)/python -m pytest -n 3 --dist loadfile -q
	@if $(WIDER); then echo "tests (pytest) on no more than AVX2" \
	  && SEARCHLAB_CPU=x86-64-v3 $(BIN)/python -m pytest -n 3 --dist loadfile -q -m "cpu and not slow"; fi

lint: $(READY) ## check style (ruff) and types (mypy)
	@echo "style (ruff)"
	@$(BIN)/ruff check --quiet .
	@echo "types (mypy)"
	@$(BIN)/mypy

format: $(READY) ## format the code and sort its imports
	@$(BIN)/ruff check --quiet --fix --select I .
	@$(BIN)/ruff format .

bench: $(READY) ## run the code generation benchmark against numpy, torch and onnxruntime
	@$(BIN)/python -m benchmarks.codegen

slow: $(READY) ## run the long tests that `make test` leaves out; code for ARM needs qemu-user and gcc-aarch64-linux-gnu
	@$(BIN)/python -m pytest -m slow || test $$? -eq 5  # 5: there are none

clean: ## remove .venv, caches and build products
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Done once, and again when the dependencies change. pip's output goes to a log, shown only if it fails.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "searchlab needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@echo "setting up $(VENV) (once, about a minute)..."
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --disable-pip-version-check --no-input -c constraints.txt -e '.[torch,peers,ray,models,bayesian,figures,dev]' >$(LOG) 2>&1 \
	  || { tail -n 40 $(LOG) >&2; echo "the installation failed; the whole log is in $(LOG)" >&2; exit 1; }
	@touch $@
