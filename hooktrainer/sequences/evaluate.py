"""`EvaluateCompletions`: scores a model's most probable completions of held-out prompts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any

import torch

from ..errors import ConfigError
from ..hooks import Evaluate
from ..networks.language_model import Sampling
from .collector import CompletionCollector, Respond
from .rewards import Rewards

_SLOTS = 128
_KEPT = ("every", "episodes", "stop_at", "log_pbar", "group")  # with an effect on completions


@dataclass(eq=False, repr=False)
class EvaluateCompletions(Evaluate):
    """Completes held-out prompts by the most probable tokens, and logs the mean reward.

    As for `Evaluate`, it may stop a solved run, and training draws the same random numbers with
    and without it. ``episodes`` is the number of prompts, the first ones of ``env``, at most all.
    ``return`` is the mean reward, ``length`` the mean number of tokens. Options of `Evaluate` that
    are about environments are refused.

    Args:
        env: The prompts, as for `CompletionCollector`.
        policy: The language model.
        rewards: Functions that score completions, as for `Rewards`.
        tokenizer: Makes tokens of texts.
        max_new_tokens: Greatest number of tokens of a completion.
        stop_tokens: As for `CompletionCollector`.
        respond: As for `CompletionCollector`.

    Raises:
        ConfigError: If an option cannot work, or has no effect.
    """

    _: KW_ONLY
    rewards: Any
    tokenizer: Any = None
    max_new_tokens: int = 64
    stop_tokens: Collection[int] | None = None
    respond: Respond | None = None

    def __post_init__(self) -> None:
        for one in fields(Evaluate)[2:]:
            given = getattr(self, one.name)
            if one.name not in _KEPT and given != one.default:
                raise ConfigError(
                    f"EvaluateCompletions: {one.name}={given!r:.60} has no effect on completions: "
                    "leave it out."
                )
        super().__post_init__()
        self._rewards = Rewards(self.rewards, self.env, self.tokenizer)
        self.episodes = min(self.episodes, len(self.env))
        completer, most = self._completer(), self.policy.context_length - 1
        for index in range(self.episodes):  # else training ends at the first evaluation
            if (number := len(completer.prompt_tokens(index))) > most:
                raise ConfigError(
                    f"EvaluateCompletions: prompt {index} has {number} tokens, and the model takes "
                    f"{most} and one more: leave it out."
                )

    def _completer(self) -> CompletionCollector:
        rows = [self.env[index] for index in range(self.episodes)]
        return CompletionCollector(
            self.policy,
            rows,
            tokenizer=self.tokenizer,
            prompts_per_batch=len(rows),
            completions_per_prompt=1,
            max_new_tokens=self.max_new_tokens,
            stop_tokens=self.stop_tokens,
            respond=self.respond,
            sampling=Sampling(top_k=1),
            slots=min(len(rows), _SLOTS),
            shuffle=False,
            epochs=1,
        )

    def _play(self) -> torch.Tensor:
        batch = self._completer().collect()
        total, _ = self._rewards.score(batch, self.trainer)
        return torch.stack([total, batch["sampled"].sum(-1).cpu()]).double()
