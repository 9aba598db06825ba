"""The program that trains a share of the seeds of a run; see `seed_share`."""

from __future__ import annotations

import importlib
import sys

if __name__ == "__main__":
    module, name, *words = sys.argv[1:]
    getattr(importlib.import_module(module), name).main(words)
