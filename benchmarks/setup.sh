#!/bin/sh
# Make .bench-venv: hooktrainer as it is in this checkout, its peers, and nothing of the
# development environment; within it .bench-venv/jax, where no torch is. Run again to update them.
# PYTHON chooses the interpreter.
set -e
cd "$(dirname "$0")/.."
test -x .bench-venv/bin/python || "${PYTHON:-python3}" -m venv .bench-venv
.bench-venv/bin/python -m pip install --quiet -c constraints.txt -r benchmarks/requirements.txt
.bench-venv/bin/python -c "import hooktrainer, torch, torchrl, stable_baselines3"
test -x .bench-venv/jax/bin/python || "${PYTHON:-python3}" -m venv .bench-venv/jax
.bench-venv/jax/bin/python -m pip install --quiet -r benchmarks/requirements-jax.txt
.bench-venv/jax/bin/python -c "import jax, optax"
echo "ready: .bench-venv/bin/python benchmarks/run.py"
