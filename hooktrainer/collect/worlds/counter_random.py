"""Random numbers that are a function of counters: nothing is carried from one to the next.

`uniforms` is the generator SplitMix64 (Steele, Lea and Flood, 2014, *Fast splittable pseudorandom
number generators*), asked for the number at any place: the n-th number of a stream is a hash of its
key plus n times an odd constant. Streams begin at places that are hashed of the seed and the
stream's index, among 2⁶⁴, so that none meets another. All of it is arithmetic of int64 tensors,
which wraps around: it gives the same numbers on every device, eager and compiled.
"""

from __future__ import annotations

import numpy as np
import torch

GAMMA = 0x9E3779B97F4A7C15 - 2**64  # as int64: 2⁶⁴ / the golden ratio, odd
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64
_BITS = 24  # that a float32 holds exactly


def stream_keys(
    seed: int, purpose: int, first: int, number: int, width: int, device: torch.device
) -> torch.Tensor:
    """Keys of streams, int64 ``[number, width]``: each of them is a stream of its own.

    Args:
        seed: The run's seed, 0 or more.
        purpose: What the numbers are for; other streams for each purpose.
        first: Index of the first row, on which its keys depend, not on how many there are.
        number: How many rows.
        width: How many streams each has.
        device: Where the keys are to be.
    """
    (word,) = np.random.SeedSequence([seed, purpose]).generate_state(1, np.uint64).view(np.int64)
    rows = torch.arange(first + 1, first + number + 1).unsqueeze(-1)
    columns = torch.arange(1, width + 1)
    keys = _mixed(_mixed(rows * GAMMA + int(word)) + columns * GAMMA)
    return (keys + GAMMA).to(device)  # where the first number of each is hashed from


def uniforms(keys: torch.Tensor, counter: torch.Tensor | int) -> torch.Tensor:
    """The numbers at one place of some streams, uniform in [0, 1), float32 like ``keys``.

    Args:
        keys: Those of the streams, from `stream_keys`.
        counter: Which number of each, from 0: int64 ``[rows]``, or one for all.
    """
    if isinstance(counter, torch.Tensor):
        place = torch.add(keys, counter.unsqueeze(-1), alpha=GAMMA)
    else:
        place = keys + _wrapped(counter * GAMMA)
    # The last step of the hash does not reach the bits that are used.
    bits = (_hashed(place) >> (64 - _BITS)) & (2**_BITS - 1)
    return bits.to(torch.float32) * 2.0**-_BITS


def _mixed(x: torch.Tensor) -> torch.Tensor:
    """SplitMix64's hash, one to one, of int64 as if they were unsigned."""
    x = _hashed(x)
    return x ^ _shifted(x, 31)


def _hashed(x: torch.Tensor) -> torch.Tensor:
    """The same but for its last step."""
    x = (x ^ _shifted(x, 30)) * _FIRST
    return (x ^ _shifted(x, 27)) * _SECOND


def _shifted(x: torch.Tensor, places: int) -> torch.Tensor:
    """``x`` to the right, with zeros from the left, as if it were unsigned."""
    return (x >> places) & (2 ** (64 - places) - 1)


def _wrapped(number: int) -> int:
    """An integer as int64 arithmetic would have it."""
    return (number + 2**63) % 2**64 - 2**63
