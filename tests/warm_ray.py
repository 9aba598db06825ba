"""Has Ray not be imported by `warm`: what it is told in a worker's environment it reads at once."""

import sys

sys.modules["ray"] = None  # type: ignore[assignment]
import warm  # noqa: E402, F401

del sys.modules["ray"]
