"""Generation of completions by continuous batching."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from ..base.checks import check_count, check_seed
from ..collect.random_streams import stream_keys, uniforms
from ..errors import ConfigError, NonFiniteError
from ..networks.language_model import Cache, LanguageModel, Sampling
from ..networks.layers import evaluation_mode

_TOKENS = 2  # purpose of the random streams
_STREAMS = 64  # random streams of groups, and of samples, made at a time
_REFILL = 16  # slots are filled when a 16th of them is free: reading prompts one by one is slow


@dataclass
class Completion:
    """A prompt, and the tokens after it.

    Args:
        prompt: Index of the prompt in its data set.
        group: Number of the draw; the samples of a group share the prompt.
        sample: Number within the group.
        tokens: The prompt's tokens and those after it.
        prompt_length: Number of tokens in the prompt.
        sampled: For each token after the prompt, whether the model chose it; others come from
            ``respond``.
        log_probs: Of each token after the prompt when it was drawn; 0 if it was not.
        versions: Version of the weights that each token after the prompt was drawn with; -1 if it
            was not drawn.
        finish: ``"stop"`` after a stop token, ``"length"`` at the limit of tokens or the end of the
            context, `None` while it is under way.
    """

    prompt: int
    group: int
    sample: int
    tokens: list[int]
    prompt_length: int
    sampled: list[bool] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    finish: str | None = None

    def state_dict(self) -> dict[str, Any]:
        """Its fields, the lists as tensors."""
        state = asdict(self)
        for name, dtype in _LISTS.items():
            state[name] = torch.tensor(state[name], dtype=dtype)
        return state

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Completion:
        """The completion that `state_dict` saved."""
        return cls(**state | {name: state[name].tolist() for name in _LISTS})


_LISTS = {
    "tokens": torch.int64,
    "sampled": torch.bool,
    "log_probs": torch.float64,
    "versions": torch.int64,
}


@dataclass
class _Running:
    """A completion in a row of the cache."""

    completion: Completion
    numbers: list[float]  # of all tokens that may still be drawn, the next one last


class Engine:
    """Generates completions by continuous batching.

    A token's random number is a function of seed, group, sample and position. In a model's exact
    mode completions are therefore the same for any number of slots and in any order.

    Args:
        model: Its weights may change between calls of `advance`; call `refresh` after that.
        slots: Number of completions that run at a time. When a sixteenth of them is free, they are
            filled from the queue.
        sampling: How tokens are drawn.
        stop_tokens: Each ends the completion, as its last token.
        max_new_tokens: Largest number of tokens drawn for a completion.
        seed: Of the random numbers.
        respond: Called when a stop token was drawn. It returns the tokens that follow, after which
            the model continues, or `None` to finish. For tools and conversations.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        slots: int,
        sampling: Sampling,
        stop_tokens: Collection[int],
        max_new_tokens: int,
        seed: int,
        respond: Callable[[Completion], Sequence[int] | None] | None = None,
    ) -> None:
        check_count("slots", slots)
        check_count("max_new_tokens", max_new_tokens)
        check_seed("seed", seed)
        self._model = model
        self._slots = slots
        self._sampling = sampling
        self._stop_tokens = frozenset(stop_tokens)
        self._max_new_tokens = max_new_tokens
        self._seed = seed
        self._respond = respond
        self._queue: deque[Completion] = deque()
        self._running: list[_Running] = []
        self._device = model.version.device
        self._keys = lru_cache(64)(self._stream_keys)
        for token in self._stop_tokens:
            if not 0 <= token < model.vocab_size:
                raise ConfigError(f"stop token {token}: the model has {model.vocab_size} tokens.")
        self.refresh()

    @cached_property
    def _cache(self) -> Cache:
        return self._model.new_cache(self._slots)

    def refresh(self) -> None:
        """Recompute the caches from the present weights: call this after they changed."""
        self._ready = 0  # so many running completions, the first, have their tokens in the cache
        self._version = int(self._model.version)
        self._modules = list(self._model.modules())

    def submit(self, completion: Completion) -> None:
        """Add a completion to the queue; an unfinished one continues after its last token."""
        self._left(completion)
        self._queue.append(completion)

    def abort(self) -> list[Completion]:
        """Remove and return all completions under way, then those in the queue."""
        completions = [running.completion for running in self._running] + list(self._queue)
        self._running.clear()
        self._queue.clear()
        self._ready = 0
        return completions

    @torch.no_grad()
    def advance(self) -> list[Completion]:
        """Draw one token for every running completion; return those that finished."""
        free = self._slots - len(self._running)
        if free >= self._slots // _REFILL:
            for _ in range(min(free, len(self._queue))):
                completion = self._queue.popleft()
                self._running.append(_Running(completion, self._numbers(completion)))
        if not self._running:
            return []
        with evaluation_mode(self._modules):
            logits = self._logits()
        log_probs = self._sampling.log_probs(logits)
        numbers = torch.tensor([running.numbers.pop() for running in self._running])
        tokens = self._sampling.sample(log_probs, numbers.to(self._device))
        drawn = log_probs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
        # One transfer to the host; a double holds both exactly.
        pairs = torch.stack([tokens.double(), drawn.double()], -1).tolist()
        if any(math.isnan(log_prob) for _, log_prob in pairs):
            raise NonFiniteError("the model's logits are not finite: its weights have diverged.")
        return self._append([(int(token), log_prob) for token, log_prob in pairs])

    def _logits(self) -> Tensor:
        """Logits after the last token of each running completion."""
        parts = []
        if self._ready:
            last = [r.completion.tokens[-1] for r in self._running[: self._ready]]
            parts.append(self._model.step(self._cache, torch.tensor(last, device=self._device)))
        if self._ready < len(self._running):
            parts.append(self._prefill(range(self._ready, len(self._running))))
            self._ready = len(self._running)
        return torch.cat(parts)

    def _prefill(self, rows: range) -> Tensor:
        """Read the tokens of these rows; equal rows, such as the samples of a group, only once."""
        read = [tuple(self._running[row].completion.tokens) for row in rows]
        reader = dict(zip(read, rows, strict=True))
        tokens = torch.tensor([token for each in reader for token in each], device=self._device)
        lengths = [len(each) for each in reader]
        logits = self._model.prefill(self._cache, list(reader.values()), tokens, lengths)
        for row, each in zip(rows, read, strict=True):
            if reader[each] != row:
                self._cache.move(reader[each], row)
        index = {each: place for place, each in enumerate(reader)}
        return logits[[index[each] for each in read]]

    def _append(self, drawn: list[tuple[int, float]]) -> list[Completion]:
        """Append a token to each running completion; return those that finished."""
        finished: list[Completion] = []
        continued: list[Completion] = []
        for row in reversed(range(len(drawn))):  # the last row takes the place of one that ends
            running, (token, log_prob) = self._running[row], drawn[row]
            completion = running.completion
            self._add(completion, token, log_prob)
            if token not in self._stop_tokens and running.numbers:
                continue
            last = self._running.pop()
            if last is not running:
                self._running[row] = last
                self._cache.move(len(self._running), row)
            self._end_turn(completion)
            (finished if completion.finish else continued).append(completion)
        self._ready = len(self._running)
        self._queue.extendleft(continued)
        return sorted(finished, key=lambda completion: (completion.group, completion.sample))

    def _add(self, completion: Completion, token: int, log_prob: float) -> None:
        """Append a token that was drawn."""
        completion.tokens.append(token)
        completion.sampled.append(True)
        completion.log_probs.append(log_prob)
        completion.versions.append(self._version)

    def _end_turn(self, completion: Completion) -> None:
        """Finish a completion, or append the reply if it ended with a stop token."""
        if completion.tokens[-1] not in self._stop_tokens:
            completion.finish = "length"
        elif self._respond is None or (reply := self._respond(completion)) is None:
            completion.finish = "stop"
        else:
            self._reply(completion, reply)

    def _reply(self, completion: Completion, reply: Sequence[int]) -> None:
        """Append tokens that were not drawn; finish if no other token can be drawn."""
        reply = list(reply)[: self._room(completion)]
        completion.tokens += reply
        completion.sampled += [False] * len(reply)
        completion.log_probs += [0.0] * len(reply)
        completion.versions += [-1] * len(reply)
        if self._is_full(completion):
            completion.finish = "length"

    def _is_full(self, completion: Completion) -> bool:
        """Whether no other token can be drawn."""
        drawn = sum(completion.sampled)
        return self._room(completion) < 1 or drawn >= self._max_new_tokens

    def _room(self, completion: Completion) -> int:
        return self._model.context_length - len(completion.tokens)

    def _left(self, completion: Completion) -> int:
        """How many tokens may still be drawn, at least 1."""
        where = f"the completion of prompt {completion.prompt}"
        if completion.finish is not None:
            raise ConfigError(f"{where} is finished ({completion.finish!r}).")
        if not completion.tokens or self._room(completion) < 1:
            raise ConfigError(
                f"{where} has {len(completion.tokens)} tokens: pass 1 to "
                f"{self._model.context_length - 1}, so that a new one fits in the model's context "
                f"of {self._model.context_length}."
            )
        if not 0 <= min(completion.tokens) <= max(completion.tokens) < self._model.vocab_size:
            raise ConfigError(
                f"{where} has tokens from {min(completion.tokens)} to {max(completion.tokens)}: "
                f"pass tokens from 0 to {self._model.vocab_size - 1}, those of the model."
            )
        left = self._max_new_tokens - sum(completion.sampled)
        if left < 1:
            raise ConfigError(f"{where} has max_new_tokens={self._max_new_tokens} already.")
        return min(left, self._room(completion))

    def _numbers(self, completion: Completion) -> list[float]:
        """Random numbers of the tokens that may still be drawn, in reverse order."""
        group, sample = completion.group, completion.sample
        key = self._keys(group // _STREAMS, sample // _STREAMS)[group % _STREAMS, sample % _STREAMS]
        first = len(completion.tokens)
        places = torch.arange(first, first + self._left(completion)).flip(0)
        return uniforms(key.view(1), places).flatten().tolist()

    def _stream_keys(self, groups: int, samples: int) -> Tensor:
        first, device = samples * _STREAMS, torch.device("cpu")
        width = first + _STREAMS
        keys = stream_keys(self._seed, _TOKENS, groups * _STREAMS, _STREAMS, width, device)
        return keys[:, first:]
