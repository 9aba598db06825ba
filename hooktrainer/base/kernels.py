"""`pin_kernels`: the same bits on every x86-64 processor of one vendor with AVX2.

Numerical libraries choose their kernels by the processor, and kernels differ in how they round.
The choice is made by environment variables that the libraries read when they are loaded. MKL has
other kernels for AMD's processors than for Intel's. Its only ones for both, which are for SSE2, are
too slow: SAC took 1.6 times the CPU time.
"""

from __future__ import annotations

import os
import sys
from typing import Final

from ..errors import ConfigError

PINNED: Final = {
    "ATEN_CPU_CAPABILITY": "avx2",  # torch: normal random numbers, reductions, compiled kernels
    "MKL_CBWR": "AVX2",  # matrix products of torch
    "ONEDNN_MAX_CPU_ISA": "AVX2",  # convolutions
    "OPENBLAS_CORETYPE": "Haswell",  # matrix products of NumPy
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",  # tanh, exp and others of NumPy
    "OMP_NUM_THREADS": "1",  # sums depend on the number of threads
    "MKL_NUM_THREADS": "1",
}
"""The environment variables."""
_READ_BY: Final = ("numpy", "torch")


def pin_kernels() -> None:
    """Compute with the kernels for AVX2, in one thread, here and in child processes.

    All processors with AVX2 of Intel compute the same bits then, and so do all of AMD.

    Call it before NumPy and PyTorch are imported; ``--deterministic`` of the `hooktrainer` command
    does.

    Raises:
        ConfigError: If one of them has been imported.

    Examples:
        >>> import hooktrainer
        >>> hooktrainer.pin_kernels()  # doctest: +SKIP
    """
    if PINNED.items() <= os.environ.items():
        return
    loaded = [name for name in _READ_BY if name in sys.modules]
    if loaded:
        words = " ".join(f"{name}='{value}'" for name, value in PINNED.items())
        raise ConfigError(
            f"deterministic=True: {' and '.join(loaded)} chose their kernels when imported. Train "
            "with the command, hooktrainer train NAME --deterministic; or call "
            "hooktrainer.pin_kernels() before other imports; or start Python with the environment "
            f"{words}."
        )
    os.environ.update(PINNED)
