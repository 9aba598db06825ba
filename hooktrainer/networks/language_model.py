"""The interface of causal language models, and the sampling of their tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..base.checks import check_count, check_positive
from ..errors import ConfigError


class Cache(ABC):
    """Keys and values of the tokens that a language model has read, a sequence in each row.

    Attributes:
        lengths: Number of tokens in each row.
    """

    lengths: list[int]

    @abstractmethod
    def move(self, source: int, target: int) -> None:
        """Copy row ``source`` over row ``target``."""


class LanguageModel(nn.Module, ABC):
    """A causal language model, as token losses and `Engine` use it.

    Sequences are packed: ``tokens`` is int64 ``[total]``, one sequence after another, and
    ``lengths`` their lengths. No time is spent on padding.

    Attributes:
        vocab_size: Number of different tokens.
        context_length: Number of tokens in the longest sequence.
        version: Number of batches that the weights were trained on, a buffer, int64 ``[]``.
    """

    vocab_size: int
    context_length: int
    version: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("version", torch.zeros((), dtype=torch.int64))

    @abstractmethod
    def forward(self, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
        """Logits, float32 ``[total, vocab]``.

        Row ``t`` of a sequence predicts its token ``t + 1``.
        """

    @abstractmethod
    def new_cache(self, rows: int) -> Cache:
        """An empty cache with this number of rows."""

    @abstractmethod
    def prefill(
        self, cache: Cache, rows: Sequence[int], tokens: Tensor, lengths: Sequence[int]
    ) -> Tensor:
        """Read whole sequences into rows of a cache, replacing what they held; no gradients.

        Returns:
            Logits after the last token of each sequence, ``[len(rows), vocab]``.
        """

    @abstractmethod
    def step(self, cache: Cache, tokens: Tensor) -> Tensor:
        """Append a token to each of the cache's first rows, ``tokens`` ``[n]``; no gradients.

        Returns:
            Logits after these tokens, ``[n, vocab]``.
        """


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn from a language model's logits.

    Args:
        temperature: Divides the logits.
        top_k: Only this number of most probable tokens is drawn, with 1 the most probable one;
            `None` for all.
        top_p: Only the most probable tokens that together have this probability are drawn.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)
        check_count("top_k", self.top_k, none="all tokens")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p={self.top_p!r}: pass a number above 0, at most 1.")

    def log_probs(self, logits: Tensor) -> Tensor:
        """Log-probabilities of the distribution that tokens are drawn from, ``[..., vocab]``.

        They are differentiable, and ``-inf`` for tokens that are never drawn. A row's bits do not
        depend on the other rows.
        """
        if self.temperature != 1:
            logits = logits / self.temperature
        if self.top_k is not None or self.top_p < 1:
            logits = logits.masked_fill(self._cut(logits.detach()), -torch.inf)
        return logits.log_softmax(-1)

    def _cut(self, logits: Tensor) -> Tensor:
        """Which tokens are never drawn."""
        ordered, order = torch.sort(logits, stable=True, dim=-1, descending=True)
        cut = torch.zeros_like(ordered, dtype=torch.bool)
        if self.top_k is not None:
            cut[..., self.top_k :] = True
        if self.top_p < 1:
            # A token stays if those before it, of the ones that top_k leaves, have less than top_p.
            probs = ordered.masked_fill(cut, -torch.inf).softmax(-1)
            before = probs.cumsum(-1) - probs
            cut |= before >= self.top_p
        return torch.zeros_like(cut).scatter_(-1, order, cut)

    def sample(self, log_probs: Tensor, uniforms: Tensor) -> Tensor:
        """Draw a token from each row by the inverse of its cumulative distribution.

        A token of probability 0 is never drawn.

        Args:
            log_probs: What `log_probs` returned, ``[n, vocab]``.
            uniforms: Random numbers in [0, 1), ``[n]``.
        """
        # Unlike exp, softmax computes a row in one way, however many there are. In double precision
        # the bound is below the sum, so that a token with a larger sum up to it exists.
        sums = log_probs.softmax(-1).double().cumsum(-1)
        return (sums <= uniforms.double().unsqueeze(-1) * sums[:, -1:]).sum(-1)


def packed(tokens: Tensor, lengths: Sequence[int]) -> Tensor:
    """Remove right padding: ``[N, T, ...]`` becomes ``[total, ...]``."""
    return tokens.flatten(0, 1).index_select(0, _padded_places(tokens, lengths, tokens.shape[1]))


def padded(values: Tensor, lengths: Sequence[int], length: int, fill: Any = 0) -> Tensor:
    """The inverse of `packed`: ``[total, ...]`` becomes ``[N, length, ...]``, padded."""
    full = values.new_full((len(lengths) * length, *values.shape[1:]), fill)
    places = _padded_places(values, lengths, length)
    return full.index_copy(0, places, values).view(-1, length, *values.shape[1:])


def places_in_sequence(lengths: Sequence[int]) -> Tensor:
    """The place of each packed token in its sequence, ``[total]``, on the CPU."""
    counts = torch.tensor(lengths)
    starts = counts.cumsum(0) - counts
    return torch.arange(sum(lengths)) - starts.repeat_interleave(counts)


def _padded_places(values: Tensor, lengths: Sequence[int], length: int) -> Tensor:
    """The place of each packed token in the flattened padded batch, ``[total]``."""
    if max(lengths) > length:
        raise ConfigError(f"a sequence of {max(lengths)} tokens does not fit in {length}.")
    rows = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    return (rows * length + places_in_sequence(lengths)).to(values.device)
