"""Lets the tests here import ``pretend_jax``, which stands beside them."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
