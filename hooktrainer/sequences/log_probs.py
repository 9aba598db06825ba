"""`RecomputeLogProbs`: log-probabilities of a batch's tokens before it is trained on."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import torch
from tensordict import TensorDictBase

from ..base.checks import check_count
from ..hooks.validate import evaluating
from ..loop.hook import TrainerHookBase
from ..networks.language_model import LanguageModel, Sampling
from ..objectives.tokens import Targets


@dataclass(eq=False, repr=False)
class RecomputeLogProbs(TrainerHookBase):
    """Computes the log-probabilities of a batch's tokens with the weights before training on it.

    Writes ``"old_log_prob"``, which `GRPOLoss` reads with ``correction``. Logs ``data/mismatch``:
    the greatest difference from the recorded log-probabilities, among tokens that these weights
    chose. It is the difference between generation and training; in exact mode it is 0.

    Args:
        model: The language model.
        sampling: How tokens were drawn.
        batch_size: Completions computed at a time.
    """

    at = "batch_process"

    model: LanguageModel
    sampling: Sampling = field(default_factory=Sampling)
    _: KW_ONLY
    batch_size: int = 64

    def __post_init__(self) -> None:
        check_count("batch_size", self.batch_size)

    def __call__(self, batch: TensorDictBase) -> TensorDictBase:
        """Return the batch with ``"old_log_prob"``, float32 ``[completions, time]``."""
        predict: Any = self.trainer.precision.around(self._log_prob)
        with evaluating(self.model):
            old = torch.cat([predict(rows) for rows in batch.split(self.batch_size)])
        own = batch["version"] == self.model.version
        if own.any():
            self.trainer.log({"data/mismatch": (old - batch["log_prob"])[own].abs().max()})
        return batch.set("old_log_prob", old)

    def _log_prob(self, rows: TensorDictBase) -> torch.Tensor:
        targets = Targets(rows["tokens"], rows["length"], rows["sampled"])
        log_probs = self.sampling.log_probs(targets.predict(self.model))
        found = torch.zeros_like(rows["log_prob"])
        found[targets.mask] = targets.log_prob(log_probs)
        return found
