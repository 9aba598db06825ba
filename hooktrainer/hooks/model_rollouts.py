"""`ModelRollouts`: learns a model of the environment, and trains on rollouts in it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDict, TensorDictBase

from ..base.checks import check_count
from ..base.tensordicts import valid_steps
from ..errors import ConfigError
from ..loop.cadence import Every
from ..loop.hook import AFTER, TrainerHookBase
from ..loop.metrics import Latest
from ..networks.dynamics import DynamicsEnsemble

if TYPE_CHECKING:
    from ..loop.loop import Loop
    from ..replay import ReplayBuffer

Transition = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(eq=False, repr=False)
class ModelRollouts(TrainerHookBase):
    """Model-based policy optimization (Janner et al., 2019, arXiv:1906.08253).

    At each ``every`` the model is fitted to the collected transitions. Then short rollouts of the
    policy in the model, from collected observations, fill a second buffer. Each sample for the
    loss, any off-policy one, is extended by transitions from that buffer.

    Args:
        dynamics: The model.
        actor: The policy, with ``act``.
        replay_buffer: The collected transitions. Its samples are the real part of a training batch.
        model_buffer: The imagined transitions, with the keys ``"observation"``, ``"action"`` and,
            under ``"next"``, ``"observation"``, ``"reward"`` and ``"terminated"``. Its
            ``batch_size`` is the imagined part of a training batch.
        every: When to fit the model and imagine.
        fit_steps: Optimizer steps of the model each time.
        fit_batch_size: Transitions per network and step.
        lr: Learning rate of the model.
        num_rollouts: Rollouts each time.
        horizon: Steps of a rollout.
        terminates: Maps observations and next ones, ``[batch, features]`` each, to whether the
            episode terminates, ``[batch, 1]``; ``None`` if it never does: warns where collected
            episodes do.
    """

    saved_attributes = ("dynamics", "optimizer", "model_buffer")

    dynamics: DynamicsEnsemble
    actor: Any
    replay_buffer: ReplayBuffer
    model_buffer: ReplayBuffer
    every: Every
    _: KW_ONLY
    fit_steps: int = 200
    fit_batch_size: int = 256
    lr: float = 1e-3
    num_rollouts: int = 1_000
    horizon: int = 1
    terminates: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None

    def __post_init__(self) -> None:
        for name in ("fit_steps", "num_rollouts", "horizon"):
            check_count(name, getattr(self, name))
        self.optimizer = torch.optim.AdamW(self.dynamics.parameters(), lr=self.lr, fused=True)
        self._has_warned = False

    def observe(self, batch: TensorDictBase) -> None:
        """Update the model's normalization with the collected steps."""
        self.dynamics.update(*_transition(valid_steps(batch)))

    def imagine(self) -> None:
        """Fit the model, and fill the model buffer with rollouts."""
        loss = self._fit()
        collected = self.replay_buffer.sample(self.num_rollouts)
        ended = collected["next", "terminated"]
        # Only on the CPU: looking would wait for an accelerator.
        if self.terminates is None and not self._has_warned and ended.is_cpu and ended.any():
            self._has_warned = True
            warnings.warn(
                "ModelRollouts: episodes terminate, but imagined steps never do, so values are "
                "wrong there: pass terminates=, a function of observations and next ones.",
                stacklevel=2,
            )
        observation = collected["observation"]
        for _ in range(self.horizon):
            action = self.actor.act(observation)["action"]
            following, reward = self.dynamics.sample(observation, action.flatten(1))
            if self.terminates is None:
                terminated = torch.zeros_like(reward, dtype=torch.bool)
            else:
                terminated = self.terminates(observation, following)
                if terminated.shape != reward.shape or terminated.dtype != torch.bool:
                    raise ConfigError(
                        f"ModelRollouts: terminates returns {list(terminated.shape)} of "
                        f"{terminated.dtype}: make it torch.bool, {list(reward.shape)}, such as "
                        "following[:, :1] < 0.7."
                    )
            after = {"observation": following, "reward": reward, "terminated": terminated}
            batch = {"observation": observation, "action": action, "next": after}
            self.model_buffer.extend(TensorDict(batch, observation.shape[:1]))
            observation = following
        if self.is_registered:
            self.trainer.log({"model/loss": loss, "model/frames": Latest(self.imagined)})

    def mix(self, sub_batch: TensorDictBase) -> TensorDictBase:
        """Extend a sample of collected transitions, ``[batch]``, by imagined ones."""
        if not len(self.model_buffer):
            return sub_batch
        imagined = self.model_buffer.sample()
        keys = imagined.exclude("index").keys(True, True)
        return torch.cat([sub_batch.select(*keys), imagined.select(*keys)])

    @property
    def imagined(self) -> int:
        """Number of transitions imagined so far."""
        return self.model_buffer.write_count

    def _fit(self) -> torch.Tensor:
        size = (self.dynamics.num_models, self.fit_batch_size)
        device = next(self.dynamics.parameters()).device
        total = torch.zeros((), dtype=torch.float64, device=device)
        for _ in range(self.fit_steps):
            # Separate samples keep the networks different.
            sample = _transition(self.replay_buffer.sample(size[0] * size[1]))
            loss = self.dynamics.loss(*(entry.view(*size, -1) for entry in sample))
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            self.optimizer.zero_grad()
            total += loss.detach()
        return total / self.fit_steps

    def register(self, trainer: Loop, name: str = "model_rollouts") -> None:
        """Register at ``batch_process``, ``pre_optim_steps`` and ``process_optim_batch``."""
        trainer.register_module(name, self)
        trainer.register_op("batch_process", self.observe)
        trainer.register_op("pre_optim_steps", self.imagine, every=self.every)
        trainer.register_op("process_optim_batch", self.mix, priority=AFTER)


def _transition(batch: TensorDictBase) -> Transition:
    """Return observation, action as a vector, next observation and reward."""
    following = batch.get("next")
    return (
        batch.get("observation"),
        batch.get("action").flatten(batch.ndim),
        following.get("observation"),
        following.get("reward"),
    )
