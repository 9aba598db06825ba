"""Algorithms of language models: where weights come from, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hooktrainer.algorithms import GRPO, SFT
from hooktrainer.errors import CheckpointError, ConfigError
from hooktrainer.sequences import text_task

ADDITION = text_task("addition")
SMALL: dict[str, Any] = {"width": 8, "depth": 1, "heads": 1, "progress_bar": False}
SMALL |= {"total_frames": 64, "tuned": False, "eval_episodes": 2}


def grpo(**options: Any) -> GRPO:
    given = {"task": ADDITION, "prompts_per_batch": 4, "mini_batch_size": 32}
    return GRPO(**{**SMALL, **given, **options})


@pytest.fixture(scope="module")
def fine_tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, torch.Tensor]]:
    place = tmp_path_factory.mktemp("runs") / "sft"
    trainer = SFT(task="addition", run_dir=place, **SMALL, seed=7).train()
    return place, dict(trainer.loss_module.model.named_parameters())


@pytest.mark.parametrize("resume", [None, "latest"])
def test_a_run_begins_with_the_weights_of_init_also_if_it_had_no_checkpoint_yet(
    fine_tuned: tuple[Path, dict[str, torch.Tensor]], tmp_path: Path, resume: str | None
) -> None:
    place, wanted = fine_tuned
    options = {"init": str(place), "run_dir": tmp_path / "run", "kl_coeff": 0.1}
    trainer = grpo(**options).trainer()
    if resume is not None:
        trainer.checkpoints.close()  # as one that is killed
        trainer = grpo(**options, resume=resume).trainer()
    for part in (trainer.loss_module.model, trainer.loss_module.reference):
        assert all(torch.equal(value, wanted[name]) for name, value in part.named_parameters())
    assert trainer.loss_module.model.version == 0


def test_a_run_is_resumed_also_if_that_of_init_is_gone(tmp_path: Path) -> None:
    SFT(task="addition", run_dir=tmp_path / "sft", **SMALL).train()
    options = {"init": str(tmp_path / "sft"), "run_dir": tmp_path / "run"}
    grpo(**options).train()
    (tmp_path / "sft").rename(tmp_path / "gone")
    assert grpo(**options, resume="latest").trainer().progress.frames == 64
    with pytest.raises(CheckpointError, match="sft"):
        grpo(**options | {"run_dir": tmp_path / "new"}).trainer()
    assert not (tmp_path / "new").exists()


def test_there_may_be_no_evaluation() -> None:
    trainer = grpo(eval_episodes=0).trainer()
    assert "evaluate" not in trainer.registry.modules


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"snapshots": 4}, ("snapshots=4", "checkpoints")),
        ({"stop_at": 0.5, "eval_episodes": 0}, ("stop_at=0.5", "eval_episodes")),
        ({"task": replace(ADDITION, held_out=()), "stop_at": 0.5}, ("stop_at", "held_out")),
        ({"task": replace(ADDITION, tokenizer=None)}, ("tokenizer",)),
        ({"task": replace(ADDITION, rewards=None)}, ("rewards", "None")),
        ({"task": {"prompts": []}}, ("task=", "TextTask")),
        ({"task": "adition"}, ("task='adition' is unknown. Did you mean addition?",)),
        ({"completions_per_prompt": 1}, ("completions_per_prompt=1",)),
        ({"exact": True, "precision": "bf16"}, ("exact=True", "precision='bf16'")),
        ({"task": replace(ADDITION, score=lambda right: [])}, ("right", "answer")),
    ],
)
def test_what_cannot_work_is_refused_before_training(
    options: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as caught:
        grpo(**options).trainer()
    assert all(word in str(caught.value) for word in words)


def test_a_model_that_is_not_there_is_refused_in_one_line(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(ConfigError, match="nowhere") as caught:
        grpo(model=str(tmp_path / "nowhere")).trainer()
    assert "\n" not in str(caught.value)
