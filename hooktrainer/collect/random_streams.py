"""Streams of random numbers as functions of a key and a position, on any device."""

from __future__ import annotations

import numpy as np
import torch

# `uniforms` is SplitMix64 (Steele, Lea and Flood, 2014, Fast splittable pseudorandom number
# generators), evaluated at any position: the n-th number of a stream is a hash of its key plus n
# times an odd constant. A key is a hash of the seed and the stream's index. Wrapping int64
# arithmetic gives the same numbers on every device, eager and compiled.
GAMMA = 0x9E3779B97F4A7C15 - 2**64  # as int64: 2⁶⁴ / the golden ratio, odd
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64
_BITS = 24  # that a float32 holds exactly


def stream_keys(
    seed: int, purpose: int, first: int, number: int, width: int, device: torch.device
) -> torch.Tensor:
    """Keys of independent random streams, int64 ``[number, width]``.

    A row's keys depend on seed, purpose and its index alone, which counts from ``first``.
    """
    (word,) = np.random.SeedSequence([seed, purpose]).generate_state(1, np.uint64).view(np.int64)
    rows = torch.arange(first + 1, first + number + 1).unsqueeze(-1)
    columns = torch.arange(1, width + 1)
    keys = _mixed(_mixed(rows * GAMMA + int(word)) + columns * GAMMA)
    return (keys + GAMMA).to(device)  # the position of each stream's first number


def uniforms(keys: torch.Tensor, counter: torch.Tensor | int) -> torch.Tensor:
    """The numbers at one position of some streams: float32 in [0, 1), shaped like ``keys``."""
    if not isinstance(counter, torch.Tensor):
        counter = keys.new_full((), counter)
    place = torch.add(keys, counter.unsqueeze(-1), alpha=GAMMA)
    # The last step of the hash does not change the upper bits used here.
    bits = (_hashed(place) >> (64 - _BITS)) & (2**_BITS - 1)
    return bits.to(torch.float32) * 2.0**-_BITS


def _mixed(x: torch.Tensor) -> torch.Tensor:
    """SplitMix64's hash, a bijection, of int64 taken as unsigned."""
    x = _hashed(x)
    return x ^ _shifted(x, 31)


def _hashed(x: torch.Tensor) -> torch.Tensor:
    """The hash without its last step."""
    x = (x ^ _shifted(x, 30)) * _FIRST
    return (x ^ _shifted(x, 27)) * _SECOND


def _shifted(x: torch.Tensor, places: int) -> torch.Tensor:
    """Logical right shift."""
    return (x >> places) & (2 ** (64 - places) - 1)
