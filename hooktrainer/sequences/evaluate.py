"""`EvaluateCompletions`: scores a model's most probable completions of held-out prompts."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch

from ..hooks import Evaluate
from ..networks.language_model import Sampling
from .collector import CompletionCollector, Respond
from .rewards import Rewards

_SLOTS = 128


@dataclass(eq=False, repr=False)
class EvaluateCompletions(Evaluate):
    """Completes held-out prompts by the most probable tokens, and logs the mean reward.

    As for `Evaluate`, it may stop a solved run, and training draws the same random numbers with
    and without it. ``episodes`` is the number of prompts, the first ones of ``env``. ``return`` is
    the mean reward, ``length`` the mean number of tokens.

    Args:
        env: The prompts, as for `CompletionCollector`.
        policy: The language model.
        rewards: Functions that score completions, as for `Rewards`.
        tokenizer: Makes tokens of texts.
        max_new_tokens: Greatest number of tokens of a completion.
        respond: As for `CompletionCollector`.
    """

    _: KW_ONLY
    rewards: Any
    tokenizer: Any = None
    max_new_tokens: int = 64
    respond: Respond | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rewards = Rewards(self.rewards, self.env, self.tokenizer)

    def _play(self) -> torch.Tensor:
        rows = [self.env[index] for index in range(min(self.episodes, len(self.env)))]
        collector = CompletionCollector(
            self.policy,
            rows,
            tokenizer=self.tokenizer,
            prompts_per_batch=len(rows),
            completions_per_prompt=1,
            max_new_tokens=self.max_new_tokens,
            respond=self.respond,
            sampling=Sampling(top_k=1),
            slots=min(len(rows), _SLOTS),
            shuffle=False,
            epochs=1,
        )
        batch = collector.collect()
        total, _ = self._rewards.score(batch, self.trainer)
        return torch.stack([total, batch["sampled"].sum(-1).cpu()]).double()
