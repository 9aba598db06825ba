# Everything runs in a virtual environment of the project's own, made on first use. Each target
# installs only what it needs, once, and again when pyproject.toml or constraints.txt change.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
unexport PYTHONDONTWRITEBYTECODE # what pip has not compiled would be compiled at every start
.NOTPARALLEL: # two pips in one environment get in each other's way
.PHONY: help setup train test test-slow test-all test-faults test-fuzz audit-kills test-gpu lint docs bench \
  bench-checkpoint bench-pipeline bench-gpu clean

help:  ## show this list
	@echo "make <target> [ARGS='...']     train, test and bench pass ARGS on to the program they run"
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

setup: $(VENV)/.dev $(VENV)/.docs  ## make .venv with all that train, test, lint and docs need

train: $(VENV)/.train  ## train PPO on CartPole until it is solved; ARGS=--help lists the options
	$(VENV)/bin/python recipes/ppo_cartpole.py $(ARGS)

PYTEST = $(VENV)/bin/python -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

test: $(VENV)/.dev  ## run the tests to run after a change; ARGS='-k hooks' runs some of them
	$(PYTEST) -m 'not slow and not gpu' $(ARGS)

test-slow: $(VENV)/.dev  ## run the others: faults, fuzz, clusters, compilers, long learning
	$(PYTEST) -m 'slow and not gpu' $(ARGS)

test-all: $(VENV)/.dev  ## run all tests
	$(PYTEST) $(ARGS)

test-faults: $(VENV)/.dev  ## crash, fill, damage and kill checkpoints some thousands of times
	HOOKTRAINER_FAULTS=1 $(VENV)/bin/python -m pytest tests/store $(ARGS)

test-fuzz: $(VENV)/.dev  ## open 10,000 spoilt files of every kind; ARGS='--cases 500 policy' fewer
	$(VENV)/bin/python tests/fuzz $(ARGS)

audit-kills: $(VENV)/.dev  ## kill runs of GRPO at random instants, count skipped and doubled prompts
	$(VENV)/bin/python benchmarks/kills.py $(ARGS)

# Where there is no network: with what is installed, and nothing is.
GPU_PYTHON = $(if $(wildcard $(VENV)/bin/python),$(VENV)/bin/python,$(PYTHON))

test-gpu:  ## test on a CUDA device what only one can show; installs nothing
	@$(GPU_PYTHON) tests/gpu $(ARGS)

lint: $(VENV)/.dev  ## check style, format, types and who imports whom
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

docs: $(VENV)/.docs  ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

bench: .bench-venv/.ready  ## measure hooktrainer and its peers side by side; ARGS=--quick tries it
	.bench-venv/bin/python benchmarks/run.py $(ARGS)

bench-checkpoint: .bench-venv/.ready  ## measure checkpoints, compared with the disk's own limit and other libraries
	.bench-venv/bin/python benchmarks/checkpoint.py $(ARGS)

bench-pipeline: $(VENV)/.dev  ## measure what stages and collecting ahead gain
	$(VENV)/bin/python benchmarks/pipeline.py $(ARGS)

bench-gpu:  ## measure PPO on 4,096 environments on a CUDA device; installs nothing
	@$(GPU_PYTHON) tests/gpu --bench $(ARGS)

clean:  ## remove what make made; runs and measured results stay
	rm -rf $(VENV) .bench-venv site build dist .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# -- virtual environments --------------------------------------------------------------------------

$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "$(PYTHON) is not Python 3.10 or newer; name one that is: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The pip file is an order-only prerequisite: an upgrade of pip is no reason to install again.
# What is imported is compiled then: pip would take a minute to compile three times as much.
$(VENV)/.dev: EXTRAS = [dev]
$(VENV)/.docs: EXTRAS = [docs]
$(VENV)/.train $(VENV)/.dev $(VENV)/.docs: pyproject.toml constraints.txt | $(VENV)/bin/pip
	@echo "Installing into $(VENV). The first time this takes some minutes: torch is large."
	$(VENV)/bin/pip install --no-compile -c constraints.txt -e '.$(EXTRAS)'
	@touch $(VENV)/.train $@ # all have what .train has

.bench-venv/.ready: benchmarks/setup.sh benchmarks/requirements.txt benchmarks/requirements-jax.txt pyproject.toml constraints.txt
	PYTHON=$(PYTHON) sh benchmarks/setup.sh
	@touch $@
