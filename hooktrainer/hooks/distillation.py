"""`Distillation`: learns from a teacher in the states that the student, or both, visit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from tensordict import TensorDict, TensorDictBase

from ..base.checks import check_fraction, check_rate
from ..errors import ConfigError
from ..loop.hook import EARLY, TrainerHookBase
from ..loop.loop import Loop
from ..networks import MemoryTrunk, QNetwork
from ..networks.head import Actor, is_deterministic
from ..objectives.common import Loss, Term
from ..objectives.from_data import PREFIX, ImitationLoss
from ..policies import LoadedPolicy
from ..replay import ReplayBuffer
from .mini_batches import MiniBatches


class Distillation(TrainerHookBase):
    """Adds a teacher's actions to each batch, and a loss that imitates them.

    The student collects, so it is taught in its own states, or a `TeacherMixture` does. If the
    trainer's loss is an `ImitationLoss`, it is the only loss. Any other loss with an
    ``actor_network`` gets an `ImitationLoss` added, as ``loss_imitation`` (Schmitt et al., 2018,
    Kickstarting Deep Reinforcement Learning, arXiv:1803.03835).

    The teacher may read entries that the student does not, such as ``"critic"``. It never changes
    and is not saved: pass the same one to a resumed run.

    Args:
        teacher: A policy or `QNetwork` without memory, from `hooktrainer.networks`, or a result of
            `load_policy`; of the last two only the best actions are known.
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
        loaded = isinstance(teacher, LoadedPolicy)
        name = type(teacher).__name__
        if not loaded and not hasattr(teacher, "evaluate"):
            raise ConfigError(
                f"Distillation({name}): pass a policy of hooktrainer.networks, or of load_policy."
            )
        problem = None
        remembers = isinstance(getattr(teacher, "trunk", None), MemoryTrunk)
        if teacher.recurrent if loaded else remembers:
            problem = "has a memory"
        elif loaded and teacher.interface.action is None:
            problem = "gives several actions, or those of several agents"
        if problem is not None:
            raise ConfigError(
                f"Distillation({name}): the teacher {problem}: pass one that chooses one action "
                "from one observation."
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
        taught = taught_by(self.teacher, batch, keys)
        batch = batch.copy()
        for key in keys:
            batch.set(PREFIX + key, taught[key])
        return batch

    def register(self, trainer: Loop, name: str = "distillation") -> None:
        """Register at ``batch_process``, and extend the loss unless it is an `ImitationLoss`."""
        super().register(trainer, name)
        loss: Any = trainer.loss_module
        if isinstance(loss, ImitationLoss):
            self._loss = loss
        else:
            student: Any = getattr(loss, "actor_network", None)
            if not isinstance(loss, Loss) or not hasattr(student, "evaluate"):
                raise ConfigError(
                    f"Distillation: {type(loss).__name__} has no policy that could be taught."
                )
            certain = only_acts(self.teacher)
            own = ImitationLoss(student, self.kind, coeff=self.coeff, certain=certain)
            loss.add_term(
                Term(own.in_keys, own.to(next(loss.parameters()).device).losses, own.hint)
            )
            self._loss = own
        written = [PREFIX + key for key in self._loss.teacher_keys]
        for hook in trainer.registry.hooks():
            holder = getattr(hook, "replay_buffer", hook)
            if isinstance(holder, (MiniBatches, ReplayBuffer)) and holder.keys is not None:
                holder.keys = list(dict.fromkeys([*holder.keys, *written]))


def taught_by(
    teacher: Any, batch: TensorDictBase, keys: Sequence[str] = ("action",)
) -> dict[str, torch.Tensor]:
    """Return a teacher's best actions for a batch ``[*batch]``, and its other entries ``keys``.

    One of `load_policy` has no other entries. Its actions have the shape and type of the batch's.
    """
    if isinstance(teacher, LoadedPolicy):
        return {"action": _best_action(teacher, batch)}
    parameters = teacher.evaluate(*(batch[key] for key in teacher.in_keys))
    if isinstance(teacher, QNetwork):
        return {"action": parameters.argmax(-1)}
    distribution = getattr(teacher, "distribution", None)
    if distribution is None:
        return {"action": parameters}
    sample = distribution.sample(parameters, ("action", *keys), deterministic=True)
    return distribution.complete(sample, ("action", *keys))


def only_acts(teacher: Any) -> bool:
    """Whether there is no closed form of the divergence from a teacher, but only its actions."""
    return not getattr(getattr(teacher, "distribution", None), "kl_keys", ())


def _best_action(teacher: LoadedPolicy, batch: TensorDictBase) -> torch.Tensor:
    inputs = []
    for one in teacher.interface.inputs:  # discrete entries of a batch count from 0 already
        value = batch[one.keys].flatten(0, batch.ndim - 1).cpu().numpy()
        inputs.append(replace(one, start=None).convert(value)[0])
    part, like = teacher.interface.action, batch["action"]
    assert part is not None
    return replace(part, start=None).tensor(teacher.outputs(inputs)[0]).to(like).view(like.shape)


class TeacherMixture(Actor):
    """Acts as the teacher with probability ``beta``, else as the student.

    It collects for DAgger (Ross, Gordon and Bagnell, 2011, arXiv:1011.0686). At every step a
    random draw for each environment selects one of the two. TorchRL's ``set_exploration_type``
    selects the student alone, except with ``RANDOM``.

    Args:
        student: The policy that learns, without a memory.
        teacher: As for `Distillation`; it reads what the student does.
        beta: The probability; a `hooktrainer.Schedule` can change it.
    """

    def __init__(self, student: Any, teacher: Any, beta: float = 1.0) -> None:
        super().__init__()
        self.student = student
        self.teacher = teacher
        self.beta = check_fraction("TeacherMixture: beta", beta)
        self.in_keys = student.in_keys
        self.out_keys = ["action"]

    @torch.no_grad()
    def act(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """The action, for the entries ``in_keys``, ``[batch, ...]`` each."""
        action = self.student.act(*inputs)["action"]
        if self.beta > 0 and not is_deterministic():
            seen = dict(zip(self.in_keys, inputs, strict=True))
            batch = TensorDict({**seen, "action": action}, batch_size=[len(action)])
            taught = taught_by(self.teacher, batch)["action"]
            chances = torch.rand(len(action), *[1] * (action.ndim - 1), device=action.device)
            action = torch.where(chances < self.beta, taught, action)
        return {"action": action}
