"""What the bits of a run depend on beside its options and hooktrainer itself."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

PACKAGES: Final = ("torch", "tensordict", "torchrl", "numpy", "gymnasium")


def surroundings(packages: Iterable[str] = ()) -> dict[str, str]:
    """Say what the bits of a run depend on here, by names that people read.

    That is the processor, from which numerical libraries choose their kernels, the system with its
    C library, and the versions of packages. The number of threads is no part of it: whoever
    compares bits sets it to one.

    Args:
        packages: Distributions beside `PACKAGES`, such as that of a simulator.
    """
    import torch

    library = " ".join(platform.libc_ver())
    return {
        "processor": f"{_processor()}, {torch.backends.cpu.get_cpu_capability()}",
        "system": " ".join(filter(None, (platform.system(), platform.machine(), library))),
        **{package: _version(package) for package in (*PACKAGES, *packages)},
    }


def changed(there: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """Say what differs, such as ``torch 2.14.0 in place of 2.13.0``."""
    return [
        f"{name} {here.get(name, 'unknown')} in place of {value}"
        for name, value in there.items()
        if here.get(name) != value
    ]


def _processor() -> str:
    """Its name and kind: virtual machines give different ones the same name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        return platform.processor() or platform.machine()
    told: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        told[key.strip()] = value.strip()
    name = told.get("model name", platform.machine())
    kind = [
        f"{key.removeprefix('cpu ')} {told[key]}" for key in ("cpu family", "model") if key in told
    ]
    return ", ".join([name, *kind])


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
