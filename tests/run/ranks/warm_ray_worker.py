"""What Ray runs as its workers' program in tests: that program, by a Python that is warm."""

import importlib.util
import os
import sys
from pathlib import Path

found = importlib.util.find_spec("ray")
assert found is not None
assert found.origin is not None
program = Path(found.origin).parent / "_private" / "workers" / "default_worker.py"
python = os.environ["WARM_PYTHON"]
os.execv(python, [python, str(program), *sys.argv[1:]])
