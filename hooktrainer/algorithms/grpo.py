"""Group relative policy optimization of language models."""

from __future__ import annotations

from typing import ClassVar, Literal

from ..errors import ConfigError
from ..hooks import MiniBatches
from ..networks.language_model import Sampling
from ..objectives import GRPOLoss
from ..run.config import Count, FreeAmongSeeds, Number, Rate
from ..sequences import CompletionCollector, GroupAdvantage, RecomputeLogProbs, Rewards
from ..trainer import Trainer
from .algorithm import algorithm
from .config import Settings
from .text import TextAlgorithm, TextRun, TotalSamples


@algorithm
class GRPO(TextAlgorithm):
    """Group relative policy optimization, for language models and rewards of their completions.

    Shao et al., 2024, arXiv:2402.03300. Options make it Dr. GRPO (arXiv:2503.20783), DAPO
    (arXiv:2503.14476), GSPO (arXiv:2507.18071) or RLOO (arXiv:2402.14740).
    """

    total_frames: TotalSamples = 100_000
    """completions to train on"""
    prompts_per_batch: Count = 16
    """prompts in a batch"""
    completions_per_prompt: Count = 8
    """completions of each prompt, its group"""
    slots: Count | None = None
    """completions computed at the same time; by default all of a batch"""
    carry_over: Number = 0
    """prompts under way beyond those of a batch, whose completions continue with newer weights"""
    max_age: Count | None = None
    """batches that a carried completion may be under way; then it is waited for; None: 2"""
    temperature: Rate = 1.0
    """temperature that tokens are drawn at"""
    top_k: Count | None = None
    """only this number of most probable tokens is drawn; None: all"""
    top_p: float = 1.0
    """only the most probable tokens that together have this probability are drawn"""
    num_epochs: Count = 1
    """passes over each batch"""
    mini_batch_size: Count = 64
    """completions per optimizer step"""
    clip: float | None = 0.2
    """clipping range of the probability ratio below 1, and above; None: no clipping (RLOO)"""
    clip_high: float | None = None
    """clipping range above 1; None: clip (DAPO: 0.28)"""
    importance: Literal["token", "sequence"] = "token"
    """ratio of each token's probabilities, or of whole completions (GSPO)"""
    average: Literal["sequence", "token", "constant"] = "sequence"
    """means over completions of their tokens' means, over all tokens (DAPO), or sums over all
    tokens by a constant (Dr. GRPO)"""
    baseline: Literal["mean", "leave_one_out"] = "mean"
    """what rewards are compared with: the group's mean, or that of the others (RLOO)"""
    scale: bool = True
    """whether advantages are divided by the deviation of their group's rewards"""
    mask_cut_off: bool = False
    """whether completions that did not stop by themselves are left out (DAPO)"""
    correction: Literal["truncate", "mask"] | None = None
    """how weights of tokens that older weights chose are bounded, as with --overlap; None: none"""
    recompute: bool = False
    """whether log-probabilities are computed again before a batch is trained on, which shows in
    data/mismatch whether generation and training agree; with correction they always are"""
    kl_coeff: Rate = 0.0
    """weight of the divergence from the initial model"""
    log_interval: FreeAmongSeeds[Count] = 2_000
    """completions in a log window"""
    save_interval: FreeAmongSeeds[Count] = 10_000
    """completions between two checkpoints"""
    eval_interval: Count = 10_000
    """completions between two evaluations"""

    tuned_for: ClassVar[Settings] = {
        "addition": {
            "lr": 1e-3,
            "anneal_lr": True,
            "prompts_per_batch": 32,
            "mini_batch_size": 128,
        },
    }

    def build(self, task: TextRun) -> Trainer:
        """Wire the trainer."""
        if self.completions_per_prompt == 1:
            raise ConfigError(
                "grpo: completions_per_prompt=1: a completion is compared with the others of its "
                "group; draw at least 2 for each prompt."
            )
        model = task.model
        sampling = Sampling(self.temperature, self.top_k, self.top_p)
        collector = CompletionCollector(
            model,
            task.task.prompts,
            tokenizer=task.tokenizer,
            prompts_per_batch=self.prompts_per_batch,
            completions_per_prompt=self.completions_per_prompt,
            max_new_tokens=task.task.max_new_tokens,
            sampling=sampling,
            slots=self.slots,
            carry_over=self.carry_over,
            max_age=self.max_age,
            respond=task.task.respond,
            seed=self.seed,
        )
        loss_module = GRPOLoss(
            model,
            sampling=sampling,
            clip=self.clip,
            clip_high=self.clip_high,
            importance=self.importance,
            average=self.average,
            max_tokens=task.task.max_new_tokens if self.average == "constant" else None,
            mask_cut_off=self.mask_cut_off,
            correction=self.correction,
            kl_coeff=self.kl_coeff,
        )
        trainer = task.trainer(
            collector, loss_module, num_epochs=self.num_epochs, optim_steps_per_batch=None
        )
        Rewards(task.task.rewards, task.task.prompts, task.tokenizer).register(trainer)
        GroupAdvantage(self.baseline, self.scale).register(trainer)
        if self.recompute or self.correction is not None:
            hook = RecomputeLogProbs(model, sampling, batch_size=self.mini_batch_size)
            hook.register(trainer)
        MiniBatches(self.mini_batch_size).register(trainer)
        return task.finish(trainer)
