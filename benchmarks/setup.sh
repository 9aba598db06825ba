#!/bin/sh
# Make .bench-venv: hooktrainer as it is in this checkout, its peers, and nothing of the
# development environment. Run again to update it. PYTHON chooses the interpreter.
set -e
cd "$(dirname "$0")/.."
test -x .bench-venv/bin/python || "${PYTHON:-python3}" -m venv .bench-venv
.bench-venv/bin/python -m pip install --quiet -c constraints.txt -r benchmarks/requirements.txt
.bench-venv/bin/python -c "import hooktrainer, torch, torchrl, stable_baselines3"
echo "ready: .bench-venv/bin/python benchmarks/run.py"
