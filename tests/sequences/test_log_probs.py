"""`RecomputeLogProbs`: in exact mode training sees the very log-probabilities of generation."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hooktrainer.algorithms import GRPO
from hooktrainer.log import read_csv
from hooktrainer.sequences import TextTask, text_task

SUMS = text_task("addition")
TASK = TextTask(
    prompts=SUMS.prompts,
    rewards=lambda completions: [text.count("1") for text in completions],
    tokenizer=SUMS.tokenizer,
    max_new_tokens=6,
)
SMALL = {"width": 16, "depth": 1, "heads": 2, "prompts_per_batch": 8, "mini_batch_size": 16}


def mismatches(tmp_path: Any, **options: Any) -> list[float]:
    given = {"task": TASK, "log_interval": 1, "lr": 0.01, "progress_bar": False, **SMALL}
    GRPO(**given, total_frames=640, logger="csv", run_dir=tmp_path / "run", **options).train()
    return [value for _, value in read_csv(tmp_path / "run")["data/mismatch"]]


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.7, "top_p": 0.95, "slots": 7},
        {"carry_over": 4, "num_epochs": 2, "correction": "truncate"},
    ],
    ids=["cut", "carried"],
)
def test_there_is_no_mismatch_in_exact_mode(options: dict[str, Any], tmp_path: Any) -> None:
    found = mismatches(tmp_path, exact=True, recompute=True, **options)
    assert len(found) == 10
    assert set(found) == {0.0}


def test_the_mismatch_of_the_free_mode_is_measured(tmp_path: Any) -> None:
    found = mismatches(tmp_path, recompute=True, slots=7)
    assert 0 < max(found) < 1e-4


def test_probabilities_of_half_precision_are_single_ones(tmp_path: Any) -> None:
    found = mismatches(tmp_path, precision="bf16", correction="truncate")
    assert 0 < max(found) < 0.03
    logged = [value for _, value in read_csv(tmp_path / "run")["train/entropy"]]
    assert any(value != torch.tensor(value).bfloat16().item() for value in logged)


def test_old_tokens_are_corrected(tmp_path: Any) -> None:
    torch.manual_seed(0)
    run = tmp_path / "run"
    options = {"overlap": 2, "correction": "mask", "total_frames": 320, "run_dir": run}
    trainer = GRPO(
        task=TASK, log_interval=1, lr=0.05, progress_bar=False, logger="csv", **SMALL, **options
    ).trainer()
    trainer.train()
    metrics = read_csv(run)
    ages = [value for _, value in metrics["data/token_age"]]
    assert ages == [0.0, 1.0, 2.0, 2.0, 2.0]
    assert max(value for _, value in metrics["train/correction_fraction"]) > 0
