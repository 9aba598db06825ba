"""Runs the tests or the benchmark that take a CUDA device; says so where there is none.

    python tests/gpu [arguments of pytest]
    python tests/gpu --bench [arguments of benchmarks/gpu.py]

It installs nothing and needs no network: what is imported has to be there.
"""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ["torch", "tensordict", "torchrl", "gymnasium", "numpy"]


def main(words: list[str]) -> int:
    bench = words[:1] == ["--bench"]
    needed = NEEDED if bench else [*NEEDED, "pytest"]
    if missing := [name for name in needed if importlib.util.find_spec(name) is None]:
        lacking = ", ".join(missing)
        print(f"{sys.executable} lacks {lacking}: install their wheels, or run make setup.")
        return 1
    import torch

    if not torch.cuda.is_available():
        print(f"no CUDA device ({torch.__version__}): nothing to {'measure' if bench else 'test'}.")
        return 0
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    if bench:
        sys.argv = ["benchmarks/gpu.py", *words[1:]]
        runpy.run_path(str(ROOT / "benchmarks" / "gpu.py"), run_name="__main__")
        return 0
    import pytest

    # Warnings of drivers and of other versions are no failures there.
    given = ["-m", "gpu", "-W", "default", "--rootdir", str(ROOT), str(ROOT / "tests" / "gpu")]
    return int(pytest.main([*given, *words]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
