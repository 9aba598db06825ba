"""Makes helpers of other tests importable."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "cli"), str(HERE.parent / "collect" / "agents")]
