"""`TransformersModel`: any causal language model of the transformers package."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ..base.lazy import import_optional
from ..errors import ConfigError
from .language_model import Cache, LanguageModel, packed, padded


class TransformersModel(LanguageModel):
    """A causal language model of the transformers package, also with adapters of peft.

    Sequences are padded inside of it, at the right, to the longest of a call. Dropout is that of
    the model: set it to 0, or log-probabilities in training are not those of generation.

    Args:
        network: The model, such as ``AutoModelForCausalLM.from_config(config)``.
        tokenizer: Its tokenizer, if texts are used.

    Attributes:
        network: The model.
        tokenizer: Its tokenizer, or ``None``.

    Raises:
        ConfigError: If its configuration has no ``vocab_size`` or no greatest length.
    """

    def __init__(self, network: nn.Module, tokenizer: Any = None) -> None:
        super().__init__()
        config: Any = network.config
        config = config.get_text_config() if hasattr(config, "get_text_config") else config
        needed = {"vocab_size": "number of tokens", "max_position_embeddings": "greatest length"}
        for name, meaning in needed.items():
            if getattr(config, name, None) is None:
                raise ConfigError(
                    f"{type(network).__name__} has no {name} in its configuration: set "
                    f"network.config.{name} to its {meaning}."
                )
        self.network = network
        self.tokenizer = tokenizer
        self.vocab_size = config.vocab_size
        self.context_length = config.max_position_embeddings
        get_base: Any = getattr(network, "get_base_model", lambda: network)  # of peft
        base = get_base()
        known = inspect.signature(base.forward).parameters
        self._cache_name = "cache" if "cache" in known else "past_key_values"
        self._cache_kind = _transformers("TransformersModel").DynamicCache

    @classmethod
    def from_pretrained(cls, name: str, **options: Any) -> TransformersModel:
        """The model of a name or directory, with its tokenizer.

        Args:
            name: As for ``AutoModelForCausalLM.from_pretrained``.
            **options: Of that.

        Raises:
            MissingPackageError: If transformers is not installed.
            ConfigError: If there is no such model.
        """
        transformers = _transformers(f"the model {name!r}")
        try:
            network = transformers.AutoModelForCausalLM.from_pretrained(name, **options)
            tokenizer = transformers.AutoTokenizer.from_pretrained(name)
        except OSError as error:
            reason = str(error).strip().split("\n", 1)[0]
            raise ConfigError(f"the model {name!r} cannot be loaded: {reason}") from error
        return cls(network, tokenizer)

    def forward(self, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
        return packed(self._run(tokens, lengths).logits, lengths).float()

    def _run(self, tokens: Tensor, lengths: Sequence[int], use_cache: bool = False) -> Any:
        ones = padded(torch.ones_like(tokens), lengths, max(lengths))
        rows = padded(tokens, lengths, max(lengths))
        return self.network(input_ids=rows, attention_mask=ones, use_cache=use_cache)

    def new_cache(self, rows: int) -> Cache:
        return _KeyValues(rows)

    def prefill(
        self, cache: Cache, rows: Sequence[int], tokens: Tensor, lengths: Sequence[int]
    ) -> Tensor:
        assert isinstance(cache, _KeyValues)
        out = self._run(tokens, lengths, use_cache=True)
        cache.put(list(rows), _layers_of(getattr(out, self._cache_name)), lengths)
        last = torch.tensor(lengths, device=tokens.device) - 1
        return out.logits[torch.arange(len(lengths), device=tokens.device), last].float()

    def step(self, cache: Cache, tokens: Tensor) -> Tensor:
        assert isinstance(cache, _KeyValues)
        number, device = len(tokens), tokens.device
        places = torch.tensor(cache.lengths[:number], device=device)
        longest = max(cache.lengths[:number])
        # The new token follows the longest sequence; the mask hides what is between.
        seen = torch.arange(longest, device=device) < places.unsqueeze(-1)
        seen = torch.cat([seen, seen.new_ones(number, 1)], -1)
        past = self._cache_kind(
            [(k[:number, :, :longest], v[:number, :, :longest]) for k, v in cache.layers]
        )
        out = self.network(
            input_ids=tokens.unsqueeze(-1),
            attention_mask=seen.long(),
            position_ids=places.unsqueeze(-1),
            use_cache=True,
            **{self._cache_name: past},
        )
        cache.append([(k[:, :, -1], v[:, :, -1]) for k, v in _layers_of(past)])
        return out.logits[:, -1].float()


def _transformers(what: str) -> Any:
    return import_optional("transformers", what, "hooktrainer[transformers]")


_KeyValue = tuple[Tensor, Tensor]


def _layers_of(cache: Any) -> list[_KeyValue]:
    return [(layer.keys, layer.values) for layer in cache.layers]


class _KeyValues(Cache):
    """Keys and values ``[rows, heads, room, width]`` of each layer; the room grows."""

    def __init__(self, rows: int) -> None:
        self.lengths = [0] * rows
        self.layers: list[_KeyValue] = []

    def put(self, rows: list[int], layers: list[_KeyValue], lengths: Sequence[int]) -> None:
        """Store sequences in rows."""
        longest = max(lengths)
        if any(key.shape[2] != longest for key, _ in layers):
            raise ConfigError(
                f"the model forgets tokens, of {longest} in a sequence: a model with a sliding "
                "window needs shorter sequences here."
            )
        if not self.layers:
            self.layers = [(self._empty(key), self._empty(value)) for key, value in layers]
        self._make_room(longest)
        for own, new in zip(self.layers, layers, strict=True):
            for held, given in zip(own, new, strict=True):
                held[rows, :, :longest] = given
        for row, length in zip(rows, lengths, strict=True):
            self.lengths[row] = length

    def append(self, layers: list[_KeyValue]) -> None:
        """Store a token at the end of each of the first rows."""
        number = len(layers[0][0])
        self._make_room(max(self.lengths[:number]) + 1)
        device = layers[0][0].device
        rows = torch.arange(number, device=device)
        places = torch.tensor(self.lengths[:number], device=device)
        for own, new in zip(self.layers, layers, strict=True):
            for held, given in zip(own, new, strict=True):
                held[rows, :, places] = given
        self.lengths[:number] = [length + 1 for length in self.lengths[:number]]

    def move(self, source: int, target: int) -> None:
        length = self.lengths[target] = self.lengths[source]
        for layer in self.layers:
            for held in layer:
                held[target, :, :length] = held[source, :, :length]

    def _empty(self, like: Tensor) -> Tensor:
        return like.new_zeros(len(self.lengths), like.shape[1], 0, like.shape[3])

    def _make_room(self, length: int) -> None:
        """Make the room at least as long."""
        room = self.layers[0][0].shape[2]
        if length > room:
            more = (0, 0, 0, max(length, 2 * room) - room)
            self.layers = [(pad(key, more), pad(value, more)) for key, value in self.layers]
