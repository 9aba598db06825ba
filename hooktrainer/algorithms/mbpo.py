"""Model-based policy optimization."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from ..base.imports import import_named
from ..base.untrusted import shown
from ..errors import ConfigError
from ..hooks import ModelRollouts
from ..loop.cadence import Every
from ..networks import DynamicsEnsemble
from ..objectives import SACLoss
from ..replay import ReplayBuffer
from ..run.config import Count, Fraction, Number, Rate
from ..trainer import Trainer
from .algorithm import algorithm
from .check_spaces import Observations
from .config import Settings, Word
from .off_policy import ActorCriticOffPolicy
from .task import Task


@algorithm
class MBPO(ActorCriticOffPolicy):
    """Model-based policy optimization, for continuous actions.

    Janner et al., 2019, arXiv:1906.08253: soft actor-critic (`SAC`), trained mostly on steps
    that an ensemble of networks imagines. It needs few frames and much computation for each.
    """

    num_envs: Count = 2
    steps_per_batch: Count = 10
    optim_steps_per_batch: Count = 100
    init_random_frames: Number = 400
    fit_interval: Count = 200
    """frames between two fits of the model"""
    fit_steps: Count = 200
    """optimizer steps of each fit"""
    num_models: Count = 5
    """dynamics networks in the ensemble"""
    num_rollouts: Count = 4_000
    """model rollouts after each fit"""
    horizon: Count = 2
    """steps of a model rollout"""
    real_ratio: Fraction = 0.1
    """fraction of each batch that is real, not from model rollouts"""
    terminates: Annotated[Any, Word("FUNCTION")] = None
    """FILE.py:NAME of a function of observations and next ones, [batch, features] each, which tells
    where imagined episodes end, [batch, 1]; in Python also itself; None: they never do"""
    buffer_size: Count = 100_000
    lr: Rate = 1e-3
    """learning rate of the actor, the Q-functions, the temperature and the model"""

    observations: ClassVar[Observations] = "vector"
    tuned_for: ClassVar[Settings] = {
        "Pendulum-v1": {
            "total_frames": 4_000,
            "eval_interval": 400,
            "eval_episodes": 20,
            "log_interval": 400,
            "save_interval": 1_000,
        },
    }

    @classmethod
    def code_in(cls, values: Mapping[str, Any]) -> str | None:
        """Describe what the values of an untrusted file would import, run or read, if anything."""
        function = values.get("terminates")
        return f"the function {shown(function)}" if function else super().code_in(values)

    def build(self, task: Task) -> Trainer:
        """Wire the trainer."""
        for name in ("memory", "her", "dataset", "n_steps"):
            if (value := getattr(self, name)) not in (None, 1):
                raise ConfigError(
                    f"mbpo: {name}={value!r}, but its model imagines single steps from what it "
                    "collects: leave that out."
                )
        real = round(self.real_ratio * self.batch_size)
        if not 0 < real < self.batch_size:
            raise ConfigError(
                f"mbpo: real_ratio={self.real_ratio} of batch_size={self.batch_size} leaves "
                "nothing collected, or nothing imagined; pass a fraction between 0 and 1."
            )
        terminates = self.terminates
        if isinstance(terminates, str):
            terminates = import_named(terminates)
        if not (terminates is None or callable(terminates)):
            raise ConfigError(f"mbpo: terminates={terminates!r:.80} is not a function.")
        actor = task.squashed_policy()
        loss_module = SACLoss(actor, task.qvalue(), gamma=self.gamma, loss_function="l2")
        loss_module.to(task.device)
        shared: dict[str, Any] = {"keys": loss_module.in_keys, "device": task.device}
        collected = ReplayBuffer(self.buffer_size, batch_size=real, **shared)
        size, left = 4 * self.num_rollouts * self.horizon, self.batch_size - real
        imagined = ReplayBuffer(size, batch_size=left, **shared)
        trainer = self._trainer(task, loss_module, actor, buffer=collected)
        dynamics = DynamicsEnsemble(
            math.prod(task.observation_space.shape or ()), actor.action_features, self.num_models
        )
        ModelRollouts(
            dynamics.to(task.device),
            actor,
            collected,
            imagined,
            every=Every(frames=self.fit_interval),
            fit_steps=self.fit_steps,
            lr=self.lr,
            num_rollouts=self.num_rollouts,
            horizon=self.horizon,
            terminates=terminates,
        ).register(trainer)
        return task.finish(trainer, actor)
