"""The program that trains a share of the seeds of a run; see `seed_runs.train_on_ray`."""

from __future__ import annotations

import importlib
import json
import sys

from ..run.config import from_plain

if __name__ == "__main__":
    module, name, values, *words = sys.argv[1:]
    kind = getattr(importlib.import_module(module), name)
    kind.main(words, from_plain(kind, json.loads(values), name))
