"""`Rewards` and `GroupAdvantage`: what functions receive, in this process and in others."""

from __future__ import annotations

import math
import os
import time
from typing import Any

import pytest
import torch
from tensordict import TensorDict, TensorDictBase

from hooktrainer import Trainer
from hooktrainer.errors import ConfigError, HookError
from hooktrainer.networks import CausalTransformer
from hooktrainer.objectives import GRPOLoss
from hooktrainer.sequences import CharTokenizer, CompletionCollector, GroupAdvantage, Rewards

TOKENIZER = CharTokenizer("ab")
ROWS = [{"prompt": "a", "answer": "ab"}, {"prompt": "bb", "answer": "b"}]
BATCH = TensorDict(
    {
        "tokens": torch.tensor([[1, 1, 2, 0], [1, 2, 0, 0], [2, 2, 2, 0], [2, 2, 2, 2]]),
        "length": torch.tensor([4, 3, 4, 4]),
        "sampled": torch.tensor([[0, 1, 1, 1], [0, 1, 1, 0], [0, 0, 1, 1], [0, 0, 1, 1]]).bool(),
        "prompt": torch.tensor([0, 0, 1, 1]),
        "group": torch.tensor([0, 0, 1, 1]),
    },
    [4],
)


def right(completions: list[str], answer: list[str]) -> list[float]:
    return [float(one == other) for one, other in zip(completions, answer, strict=True)]


def test_functions_receive_the_arguments_they_name() -> None:
    seen: dict[str, Any] = {}

    def everything(**given: Any) -> torch.Tensor:
        seen.update(given)
        return torch.zeros(4)

    def seen_prompts(prompts: list[str], completion_ids: list[list[int]]) -> list[float]:
        assert prompts == ["a", "a", "bb", "bb"]
        return [len(one) for one in completion_ids]

    rewards = Rewards([everything, seen_prompts], ROWS, TOKENIZER, weights={"seen_prompts": 0.5})
    total, each = rewards.score(BATCH.clone(), "the trainer")
    assert total.tolist() == [1.5, 1.0, 1.0, 1.0]
    assert each["seen_prompts"].tolist() == [3.0, 2.0, 2.0, 2.0]
    assert seen["completions"] == ["ab", "b", "b", "bb"]
    assert seen["answer"] == ["ab", "ab", "b", "b"]
    assert seen["trainer"] == "the trainer"
    assert set(seen) == {"prompts", "completions", "completion_ids", "answer", "trainer"}


def test_none_is_left_out_of_the_sum_and_of_the_mean() -> None:
    rewards = Rewards(lambda completions: [1.0, None, 3.0, None], ROWS, TOKENIZER)
    total, each = rewards.score(BATCH.clone())
    assert total.tolist() == [1.0, 0.0, 3.0, 0.0]
    assert each["<lambda>"].isnan().tolist() == [False, True, False, True]


def test_a_chat_is_given_as_messages_and_a_missing_column_as_none() -> None:
    chat = [{"role": "user", "content": "a"}]
    rows = [{"prompt": chat, "answer": "ab"}, {"prompt": "bb"}]

    def contents(prompts: list[Any], completions: list[Any], answer: list[Any]) -> list[float]:
        assert prompts == [chat, chat, "bb", "bb"]
        assert completions[0] == [{"role": "assistant", "content": "ab"}]
        assert completions[2] == "b"
        assert answer == ["ab", "ab", None, None]
        return [0.0] * 4

    Rewards(contents, rows, TOKENIZER).score(BATCH.clone())


def fails(completions: list[str]) -> list[float]:
    raise KeyError("nothing")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (fails, ("'f'", "KeyError")),
        (lambda completions: [1.0], ("'f'", "1 number", "4")),
        (lambda completions: [0.0, math.nan, 0.0, 0.0], ("'f'", "nan", "completion 1")),
        (lambda completions: ["1", 0.0, 0.0, 0.0], ("'f'", "'1'")),
        (lambda completions: None, ("'f'", "None")),
        (lambda completions: torch.tensor(1.0), ("'f'", "tensor(1.)")),
    ],
)
def test_bad_rewards_end_the_run_in_one_line(function: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(HookError) as caught:
        Rewards({"f": function}, ROWS, TOKENIZER).score(BATCH.clone())
    assert all(word in str(caught.value) for word in words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"functions": lambda solution: []}, ("solution", "answer")),
        ({"functions": lambda solution, **others: []}, ("solution", "answer")),
        ({"functions": []}, ("[]",)),
        ({"functions": None}, ("None",)),
        ({"functions": [right, right]}, ("right",)),
        ({"timeout": 0.0, "processes": 1}, ("timeout=0.0",)),
        ({"weights": {"other": 1.0}}, ("other", "right")),
        ({"timeout": 1.0}, ("timeout=1.0", "processes")),
        ({"functions": lambda trainer: [], "processes": 1}, ("trainer",)),
        ({"functions": "a/model"}, ("'a/model'", "callable")),
        ({"functions": ["a/model"]}, ("'a/model'", "callable")),
        ({"functions": {"equal": right}}, ("reward/equal", "name")),
        ({"weights": {"right": math.nan}}, ("'right'", "nan")),
        ({"weights": {"right": "2"}}, ("'right'", "'2'")),
        ({"on_timeout": -1.0}, ("on_timeout=-1.0", "processes")),
        ({"data": []}, ("data", "empty")),
        ({"data": [{"prompt": "a", "completions": "b", "answer": "b"}]}, ("'completions'",)),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        Rewards(**{"functions": right, "data": ROWS, "tokenizer": TOKENIZER, **options})
    assert all(word in str(caught.value) for word in words)


def slow_or_deadly(completions: list[str], answer: list[str]) -> list[float]:
    if completions == ["b"]:
        time.sleep(60)
    if completions == ["bb"]:
        os._exit(3)
    return right(completions, answer)


def test_processes_end_what_takes_too_long_and_survive_what_dies() -> None:
    rewards = Rewards(slow_or_deadly, ROWS, TOKENIZER, processes=2, timeout=2.0, on_timeout=-1.0)
    try:
        for _ in range(2):
            total, _ = rewards.score(BATCH.clone())
            assert total.tolist() == [1.0, -1.0, -1.0, -1.0]
    finally:
        rewards.close()


def fails_on_b(completions: list[str]) -> list[float]:
    if completions == ["b"]:
        raise KeyError("nothing")
    if completions == ["ab"]:
        time.sleep(0.5)
    return [float(completions[0].count("b"))]


def test_an_exception_in_a_process_names_the_reward_and_leaves_no_score_behind() -> None:
    rewards = Rewards(fails_on_b, ROWS, TOKENIZER, processes=2)
    try:
        with pytest.raises(HookError, match=r"'fails_on_b'.*KeyError"):
            rewards.score(BATCH.clone())
        total, _ = rewards.score(BATCH[[3, 3]])
        assert total.tolist() == [2.0, 2.0]
    finally:
        rewards.close()


@pytest.mark.parametrize(("baseline", "factor"), [("mean", 0.5), ("leave_one_out", 1.0)])
def test_advantages_compare_with_the_group(baseline: Any, factor: float) -> None:
    logged: dict[str, Any] = {}

    class Note(GroupAdvantage):
        def __call__(self, batch: TensorDictBase) -> TensorDictBase:
            logged["batch"] = batch = super().__call__(batch)
            return batch

    torch.manual_seed(0)
    model = CausalTransformer(3, 16, width=8, depth=1, heads=1)
    collector = CompletionCollector(
        model,
        ROWS,
        tokenizer=TOKENIZER,
        prompts_per_batch=2,
        completions_per_prompt=2,
        max_new_tokens=3,
    )
    trainer = Trainer(
        collector=collector,
        total_frames=4,
        loss_module=GRPOLoss(model),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        optim_steps_per_batch=1,
        logger=[],
        progress_bar=False,
    )
    values = iter([3.0, 1.0, 2.0, 2.0])
    Rewards(lambda completions: [next(values) for _ in completions], ROWS, TOKENIZER).register(
        trainer
    )
    Note(baseline, scale=False).register(trainer)
    trainer.train()
    assert logged["batch"]["advantage"].tolist() == [2 * factor, -2 * factor, 0.0, 0.0]
    latest = trainer.metrics.reported
    assert latest["train/reward"] == 2.0
    assert latest["reward/equal"] == 0.5
    assert latest["reward/deviation"] == 0.5
    assert latest["data/token_age"] == 0.0


def test_equal_rewards_are_counted_as_equal_whatever_they_are() -> None:
    class Log:
        def log(self, metrics: dict[str, Any]) -> None:
            self.metrics = metrics

    hook, log = GroupAdvantage(), Log()
    hook.trainer = log
    reward = torch.tensor([0.1] * 7 + [0.0] * 6 + [1.0])
    group = torch.arange(2).repeat_interleave(7)
    batch = hook(TensorDict({"reward": reward, "group": group}, [14]))
    assert (batch["advantage"][:7] == 0).all()
    assert log.metrics["reward/equal"].values.mean() == 0.5


def test_a_hook_that_cannot_work_is_refused_when_it_is_made() -> None:
    with pytest.raises(ConfigError, match="scale"):
        GroupAdvantage(None)
