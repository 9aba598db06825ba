"""A causal transformer, optionally one whose results do not depend on how sequences are batched."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from ..base.checks import check_count
from ..errors import ConfigError
from .language_model import Cache, LanguageModel, places_in_sequence

# In exact mode every matrix product is one of a batch of products of these shapes, so that it is
# rounded in the same way wherever it occurs. A BLAS chooses a kernel by the shape of one product:
# how one product with all rows is rounded depends on their number.
_ROWS = 16  # of a linear layer's input
_QUERIES = 8
_KEYS = 64  # of later tokens count as well, with weight 0, which changes no sum

# Packed sequences are computed in groups of similar lengths.
_SIMILAR = 0.7  # of the length of the longest sequence of the group, at least
_LARGE = 512  # tokens, so that a group is worth computing by itself


def check_sizes(width: int, heads: int, **others: int) -> None:
    """Raise ConfigError unless all are positive, and ``width`` is a multiple of ``heads``."""
    for name, value in {**others, "width": width, "heads": heads}.items():
        check_count(name, value)
    if width % heads:
        raise ConfigError(f"width={width}: pass a multiple of heads={heads}.")


class CausalTransformer(LanguageModel):
    """A pre-norm transformer with learned positions, squared ReLU and no biases.

    In exact mode a token's logits depend on the tokens before it alone, bit for bit: not on the
    other sequences, their order or number, nor on whether keys and values come from a cache. Log-
    probabilities are then the same bits in generation and in training. This is tested on CPUs, and
    not promised on GPUs. Gradients are those of the other mode, up to rounding.

    Args:
        vocab_size: Number of tokens.
        context_length: Number of tokens in the longest sequence.
        width: Number of features of a token; a multiple of ``heads``.
        depth: Number of blocks of attention and multi-layer perceptron.
        heads: Number of attention heads.
        exact: Whether to compute in exact mode, which is slower.
    """

    def __init__(
        self,
        vocab_size: int,
        context_length: int,
        *,
        width: int = 64,
        depth: int = 2,
        heads: int = 4,
        exact: bool = False,
    ) -> None:
        super().__init__()
        sizes = {"vocab_size": vocab_size, "context_length": context_length}
        check_sizes(width, heads, **sizes, depth=depth)
        self.vocab_size = vocab_size
        self.context_length = context_length
        self.heads = heads
        self.exact = exact
        self.embedding = nn.Embedding(vocab_size, width)
        self.positions = nn.Embedding(context_length, width)
        self.blocks = nn.ModuleList(Block(width, heads, exact) for _ in range(depth))
        self.norm = nn.LayerNorm(width, bias=False)
        self.head = _Linear(width, vocab_size, exact)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the weights: a token's first prediction is near uniform."""
        for embedding in (self.embedding, self.positions):
            nn.init.normal_(embedding.weight, std=0.1)
        for block in self._blocks():
            for layer in (block.attention_in, block.attention_out, block.mlp_in, block.mlp_out):
                layer.reset_parameters()
            # The sum of all blocks has the same variance for any depth (Radford et al., 2019).
            for layer in (block.attention_out, block.mlp_out):
                layer.weight.data /= math.sqrt(2 * len(self.blocks))
        self.norm.reset_parameters()
        nn.init.normal_(self.head.weight, std=0.02)

    def forward(self, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
        return self.head(self._read(tokens, lengths)[0]).float()  # also under autocast

    def new_cache(self, rows: int) -> Cache:
        return _KeyValues(self, rows)

    @torch.no_grad()
    def prefill(
        self, cache: Cache, rows: Sequence[int], tokens: Tensor, lengths: Sequence[int]
    ) -> Tensor:
        x, places, layers = self._read(tokens, lengths)
        counts = torch.tensor(lengths)
        at = torch.tensor(rows).repeat_interleave(counts).to(tokens.device)
        held = cast(_KeyValues, cache)
        held.make_room(max(lengths))
        for layer, qkv in zip(held.values, layers, strict=True):
            layer[:, at, :, places] = qkv[:, 1:]
        for row, length in zip(rows, lengths, strict=True):
            cache.lengths[row] = length
        return self.head(x[(counts.cumsum(0) - 1).to(tokens.device)])

    @torch.no_grad()
    def step(self, cache: Cache, tokens: Tensor) -> Tensor:
        number, lengths, device = len(tokens), cache.lengths, tokens.device
        if max(lengths[:number]) >= self.context_length:
            raise ConfigError(
                f"a sequence has {self.context_length} tokens, the model's context: end it."
            )
        at = torch.tensor(lengths[:number], device=device)
        lengths[:number] = [length + 1 for length in lengths[:number]]
        held = cast(_KeyValues, cache)
        held.make_room(max(lengths[:number]))
        attention = _StepAttention(self, lengths[:number], at)
        x = self.embedding(tokens) + self.positions(at)
        for block, values in zip(self._blocks(), held.values, strict=True):
            x = block.after(x, attention(block.queries_keys_values(x), values))
        return self.head(self.norm(x))

    def _read(self, tokens: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Features of each token, its position, and each block's queries, keys and values."""
        if min(lengths) < 1 or max(lengths) > self.context_length or sum(lengths) != len(tokens):
            raise ConfigError(
                f"lengths={list(lengths)!r:.80}: pass numbers from 1 to the model's context of "
                f"{self.context_length}, of {len(tokens)} tokens in all."
            )
        attention = _PackedAttention(self, lengths, tokens.device)
        x = self.embedding(tokens) + self.positions(attention.places)
        layers = []
        for block in self._blocks():
            qkv = block.queries_keys_values(x)
            layers.append(qkv)
            x = block.after(x, attention(qkv))
        return self.norm(x), attention.places, layers

    def _blocks(self) -> Iterator[Block]:
        return cast(Iterator[Block], iter(self.blocks))


class _KeyValues(Cache):
    """Keys and values, ``[depth, 2, rows, heads, room, features]``; the room grows."""

    def __init__(self, model: CausalTransformer, rows: int) -> None:
        weight = model.positions.weight
        shape = (rows, model.heads, 0, weight.shape[1] // model.heads)
        self.values = weight.new_zeros(len(model.blocks), 2, *shape)
        self.lengths = [0] * rows
        self._most = model.context_length

    def make_room(self, length: int) -> None:
        """Make room for sequences of this length, at most twice as much as they need."""
        room = self.values.shape[-2]
        if length > room:
            wider = _up_to(min(max(length, 2 * room), self._most), _KEYS)
            self.values = functional.pad(self.values, (0, 0, 0, wider - room))

    def move(self, source: int, target: int) -> None:
        length = self.lengths[target] = self.lengths[source]
        self.values[:, :, target, :, :length] = self.values[:, :, source, :, :length]


class Block(nn.Module):
    """A block of a pre-norm transformer, without its attention, which the caller computes."""

    def __init__(self, width: int, heads: int, exact: bool) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width, bias=False)
        self.attention_in = _Linear(width, 3 * width, exact)
        self.attention_out = _Linear(width, width, exact)
        self.mlp_norm = nn.LayerNorm(width, bias=False)
        self.mlp_in = _Linear(width, 4 * width, exact)
        self.mlp_out = _Linear(4 * width, width, exact)

    def queries_keys_values(self, x: Tensor) -> Tensor:
        """``[tokens, 3, heads, features]``, of ``x`` ``[tokens, width]``."""
        return self.attention_in(self.attention_norm(x)).view(len(x), 3, self.heads, -1)

    def after(self, x: Tensor, attended: Tensor) -> Tensor:
        """The block's result ``[tokens, width]``, of the result of attention, likewise."""
        x = x + self.attention_out(attended)
        # Squared ReLU is rounded in one way; exp and tanh are not at the end of a vector.
        return x + self.mlp_out(self.mlp_in(self.mlp_norm(x)).relu().square())


class _Linear(nn.Linear):
    def __init__(self, in_features: int, out_features: int, exact: bool) -> None:
        super().__init__(in_features, out_features, bias=False)
        self.exact = exact

    def forward(self, x: Tensor) -> Tensor:
        if not self.exact:
            return functional.linear(x, self.weight)
        if not torch.is_grad_enabled():
            return _exact_linear(x, self.weight)
        return cast(Any, _ExactLinear).apply(x, self.weight)


def _exact_linear(x: Tensor, weight: Tensor) -> Tensor:
    """``x @ weight.T`` by blocks of rows."""
    number = len(x)
    if number % _ROWS:
        x = functional.pad(x, (0, 0, 0, -number % _ROWS))
    blocks = x.view(-1, _ROWS, x.shape[1])
    return torch.bmm(blocks, weight.t().expand(len(blocks), -1, -1)).flatten(0, 1)[:number]


class _ExactLinear(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _exact_linear(x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return grad @ weight, grad.t() @ x


class _StepAttention:
    """Attention of a new token in each of the first rows to what the cache holds of its row."""

    def __init__(self, model: CausalTransformer, lengths: Sequence[int], places: Tensor) -> None:
        self.exact = model.exact
        self.rows = torch.arange(len(places), device=places.device)
        self.places = places
        self.keys = _up_to(max(lengths), _KEYS) if model.exact else max(lengths)
        later = torch.arange(self.keys, device=places.device) > places.unsqueeze(-1)
        self.bias = torch.zeros_like(later, dtype=torch.float32).masked_fill_(later, -torch.inf)

    def __call__(self, qkv: Tensor, values: Tensor) -> Tensor:
        number, _, heads, features = qkv.shape
        values[:, self.rows, :, self.places] = qkv[:, 1:]
        k, v = values[:, :number, :, : self.keys].flatten(1, 2)
        q = (qkv[:, 0] * features**-0.5).view(-1, 1, features)
        if self.exact:
            scores = _scores(q.expand(-1, _QUERIES, -1).contiguous(), k)[:, :1]
        else:
            scores = torch.bmm(q, k.transpose(1, 2))
        weights = scores.view(number, heads, -1) + self.bias.unsqueeze(1)
        weights = weights.softmax(-1).flatten(0, 1).unsqueeze(1)
        if self.exact:
            out = _weighted(weights.expand(-1, _QUERIES, -1).contiguous(), v)[:, 0]
        else:
            out = torch.bmm(weights, v)
        return out.reshape(number, heads * features)


class _PackedAttention:
    """Causal attention within each of some packed sequences.

    Sequences of similar lengths are padded and computed together. Padding comes last, so that the
    causal mask excludes it.
    """

    def __init__(self, model: CausalTransformer, lengths: Sequence[int], device: Any) -> None:
        self.exact = model.exact
        self.shapes: list[tuple[int, int]] = []  # sequences in a group, and their padded length
        offsets = [0] * len(lengths)  # of each sequence's first token among the padded ones
        size = 0
        for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
            number, padded = self.shapes[-1] if self.shapes else (0, 0)
            if not padded or (number * padded >= _LARGE and lengths[index] < _SIMILAR * padded):
                number, padded = 0, _up_to(lengths[index], _QUERIES if model.exact else 1)
                self.shapes.append((number, padded))
            self.shapes[-1] = (number + 1, padded)
            offsets[index] = size
            size += padded
        places = places_in_sequence(lengths)
        self.places = places.to(device)
        to = places + torch.tensor(offsets).repeat_interleave(torch.tensor(lengths))
        self.size = size
        self.to = None if torch.equal(to, torch.arange(size)) else to.to(device)

    def __call__(self, qkv: Tensor) -> Tensor:
        if self.to is not None:
            qkv = qkv.new_zeros(self.size, *qkv.shape[1:]).index_copy(0, self.to, qkv)
        attention = cast(Any, _ExactAttention).apply if self.exact else _attention
        sizes = [number * length for number, length in self.shapes]
        parts = []
        for part, shape in zip(torch.split(qkv, sizes), self.shapes, strict=True):
            q, k, v = part.view(*shape, *qkv.shape[1:]).permute(2, 0, 3, 1, 4)
            out = attention(q, k, v)
            parts.append(out.transpose(1, 2).flatten(2).flatten(0, 1))
        out = parts[0] if len(parts) == 1 else torch.cat(parts)
        return out if self.to is None else cast(Any, _Take).apply(out, self.to)


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class _ExactAttention(Function):
    """Causal attention by blocks of queries and keys, ``[sequences, heads, length, features]``."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(*inputs)
        number, heads, length, features = inputs[0].shape
        q, k, v = (
            functional.pad(part, (0, 0, 0, _up_to(length, size) - length)).flatten(0, 1)
            for part, size in zip(inputs, (_QUERIES, _KEYS, _KEYS), strict=True)
        )
        q = q * features**-0.5
        outs = []
        for start in range(0, length, _QUERIES):
            queries = torch.arange(start, start + _QUERIES, device=q.device).unsqueeze(-1)
            keys = _up_to(start + _QUERIES, _KEYS)
            scores = _scores(q[:, start : start + _QUERIES], k[:, :keys])
            scores.masked_fill_(torch.arange(keys, device=q.device) > queries, -torch.inf)
            outs.append(_weighted(scores.softmax(-1), v[:, :keys]))
        return torch.cat(outs, 1).view(number, heads, -1, features)[:, :, :length]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        inputs = [part.detach().requires_grad_() for part in ctx.saved_tensors]
        with torch.enable_grad():
            out = _attention(*inputs)
        return torch.autograd.grad(out, inputs, grad)


def _scores(q: Tensor, k: Tensor) -> Tensor:
    """``q @ k.transpose(1, 2)`` by blocks of keys."""
    scores = q.new_empty(*q.shape[:2], k.shape[1])
    for start in range(0, k.shape[1], _KEYS):
        block = slice(start, start + _KEYS)
        torch.bmm(q, k[:, block].transpose(1, 2), out=scores[:, :, block])
    return scores


def _weighted(weights: Tensor, v: Tensor) -> Tensor:
    """``weights @ v`` by blocks of keys."""
    out = torch.bmm(weights[:, :, :_KEYS], v[:, :_KEYS])
    for start in range(_KEYS, v.shape[1], _KEYS):
        block = slice(start, start + _KEYS)
        out.baddbmm_(weights[:, :, block], v[:, block])
    return out


class _Take(Function):
    """Rows of a tensor, none of them twice, so that the gradient is a copy and no sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.shape = x.shape
        return x.index_select(0, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors
        return grad.new_zeros(ctx.shape).index_copy_(0, rows, grad), None


def _up_to(number: int, multiple: int) -> int:
    """Round up."""
    return -(-number // multiple) * multiple
