"""`Distillation`: learns from a teacher in the states that the student visits."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from tensordict import TensorDictBase

from ..base.checks import check_rate
from ..errors import ConfigError
from ..loop.hook import EARLY, TrainerHookBase
from ..loop.loop import Loop
from ..networks import MemoryTrunk
from ..objectives.common import Loss, Term
from ..objectives.from_data import PREFIX, ImitationLoss
from ..policies import LoadedPolicy
from .mini_batches import MiniBatches


class Distillation(TrainerHookBase):
    """Adds a teacher's actions to each batch, and a loss that imitates them.

    The student collects, so it is taught in its own states (Ross, Gordon and Bagnell, 2011, DAgger,
    arXiv:1011.0686, without a mixture of both policies). If the trainer's loss is an
    `ImitationLoss`, it is the only loss. Any other loss with an ``actor_network`` gets an
    `ImitationLoss` added, as ``loss_imitation`` (Schmitt et al., 2018, Kickstarting Deep
    Reinforcement Learning, arXiv:1803.03835).

    The teacher may read entries that the student does not, such as ``"critic"``. It never changes
    and is not saved: pass the same one to a resumed run.

    Args:
        teacher: A policy without memory from `hooktrainer.networks`, or a result of `load_policy`,
            which only gives its best actions.
        coeff: Factor of the added loss.
        kind: Kind of the added loss: ``"mse"`` or ``"kl"``, see `ImitationLoss`.

    Raises:
        ConfigError: If the teacher is neither or has a memory; at registration, if the loss has no
            policy to teach.
    """

    at = "batch_process"
    priority = EARLY
    phase = "teacher"

    def __init__(
        self, teacher: Any, *, coeff: float = 1.0, kind: Literal["mse", "kl"] = "mse"
    ) -> None:
        self.loaded = isinstance(teacher, LoadedPolicy)
        name = type(teacher).__name__
        if not self.loaded and not hasattr(teacher, "evaluate"):
            raise ConfigError(
                f"Distillation({name}): pass a policy of hooktrainer.networks, or of load_policy."
            )
        remembers = isinstance(getattr(teacher, "trunk", None), MemoryTrunk)
        if self.loaded:
            remembers = teacher.recurrent or teacher.interface.action is None
        if remembers:
            raise ConfigError(
                f"Distillation({name}): the teacher has a memory, several agents or several "
                "actions, which a batch does not hold."
            )
        self.teacher = teacher
        self.coeff = check_rate("Distillation: coeff", coeff)
        self.kind: Literal["mse", "kl"] = kind
        self._loss: ImitationLoss | None = None

    @torch.no_grad()
    def __call__(self, batch: TensorDictBase) -> TensorDictBase:
        """Return a copy of ``batch``, ``[*batch]``, with the teacher's entries.

        Raises:
            KeyError: If the batch lacks an input of the teacher.
        """
        keys = ("action",) if self._loss is None else self._loss.teacher_keys
        taught = self._asked(batch) if self.loaded else self._computed(batch, keys)
        batch = batch.copy()
        for key in keys:
            batch.set(PREFIX + key, taught[key])
        return batch

    def _computed(self, batch: TensorDictBase, keys: tuple[str, ...]) -> dict[str, torch.Tensor]:
        inputs = [batch[key] for key in self.teacher.in_keys]
        parameters = self.teacher.evaluate(*inputs)
        distribution = getattr(self.teacher, "distribution", None)
        if distribution is None:
            return {"action": parameters}
        sample = distribution.sample(parameters, ("action", *keys), deterministic=True)
        return distribution.complete(sample, ("action", *keys))

    def _asked(self, batch: TensorDictBase) -> dict[str, torch.Tensor]:
        seen = {
            key: value.flatten(0, batch.ndim - 1).cpu().numpy()
            for key, value in batch.items()
            if isinstance(value, torch.Tensor)
        }
        action = self.teacher(seen.get("observation", seen))
        like = batch.get("action")
        start = self.teacher.interface.action.start  # not in a batch's discrete actions
        action = np.asarray(action) if start is None else np.asarray(action) - np.asarray(start)
        taught = torch.from_numpy(action).to(like).view(like.shape)
        return {"action": taught}

    def register(self, trainer: Loop, name: str = "distillation") -> None:
        """Register at ``batch_process``, and extend the loss unless it is an `ImitationLoss`."""
        super().register(trainer, name)
        loss: Any = trainer.loss_module
        if isinstance(loss, ImitationLoss):
            self._loss = loss
        else:
            student = getattr(loss, "actor_network", None)
            if not isinstance(loss, Loss) or student is None:
                raise ConfigError(
                    f"Distillation: {type(loss).__name__} has no policy that could be taught."
                )
            own = ImitationLoss(student, self.kind, coeff=self.coeff, certain=self.loaded)
            loss.add_term(
                Term(own.in_keys, own.to(next(loss.parameters()).device).losses, own.hint)
            )
            self._loss = own
        written = [PREFIX + key for key in self._loss.teacher_keys]
        for hook in trainer.registry.hooks():
            if isinstance(hook, MiniBatches) and hook.keys is not None:
                hook.keys = [*hook.keys, *written]
