"""`EvaluateCompletions`: what it counts, and what it refuses before training."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hooktrainer import Every
from hooktrainer.errors import ConfigError
from hooktrainer.networks import CausalTransformer
from hooktrainer.sequences import CharTokenizer, EvaluateCompletions
from hooktrainer.testing import tiny_trainer

ROWS: list[dict[str, Any]] = [{"prompt": [1]}, {"prompt": [2, 2]}, {"prompt": [1, 2]}]


def made(**options: Any) -> EvaluateCompletions:
    torch.manual_seed(0)
    model = CausalTransformer(3, 12, width=8, depth=1, heads=1)
    given = {"env": ROWS, "policy": model, "every": Every(samples=8), "stop_tokens": [0]}
    given |= {"rewards": lambda completion_ids: [len(one) for one in completion_ids]}
    return EvaluateCompletions(**{**given, "max_new_tokens": 4, **options})


@pytest.mark.parametrize(("episodes", "number"), [(2, 2), (50, 3)])
def test_it_counts_the_prompts_that_it_completes_also_without_a_tokenizer(
    episodes: int, number: int
) -> None:
    hook = made(episodes=episodes)
    hook.register(tiny_trainer())
    found = hook.evaluate()
    assert found["eval/episodes"] == number
    assert found["eval/return"] == found["eval/length"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"deterministic": False}, ("deterministic=False",)),
        ({"info_keys": ["x"]}, ("info_keys=['x']",)),
        ({"seed": 3}, ("seed=3",)),
        ({"frame_skip": 2}, ("frame_skip=2",)),
        ({"env": []}, ("empty",)),
        ({"env": [*ROWS, {"prompt": [1] * 12}]}, ("prompt 3", "12", "11")),
        ({"env": [{"prompt": "a"}]}, ("prompt 0", "tokenizer")),
        ({"stop_tokens": None}, ("stop_tokens",)),
        ({"max_new_tokens": 0}, ("max_new_tokens=0",)),
        ({"respond": print}, ("tokenizer",)),
        ({"stop_tokens": None, "tokenizer": CharTokenizer("ab"), "rewards": []}, ("[]",)),
    ],
)
def test_what_cannot_work_or_has_no_effect_is_refused_before_training(
    options: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as caught:
        made(**options)
    assert all(word in str(caught.value) for word in words)
