"""DreamerV3."""

from __future__ import annotations

import math
from functools import partial
from typing import Annotated, ClassVar

import numpy as np
from gymnasium import spaces
from torch import nn

from ..base.space_parts import CRITIC, MASK
from ..errors import ConfigError
from ..hooks import SequenceReplay, TargetNetUpdaterHook
from ..networks import NetworkFactory, TwoHot, WorldModel, WorldModelPolicy, distribution_for, mlp
from ..networks.network_factory import ACTIVATIONS
from ..networks.world_model import zero_output
from ..objectives import DreamerLoss, SoftUpdate
from ..optim import FlatAdam
from ..replay import ReplayBuffer
from ..run.config import Between, Count, Fraction, Number, Rate
from ..trainer import Trainer
from .algorithm import algorithm
from .check_spaces import Actions
from .config import CARTPOLE, Activation, Settings
from .off_policy import FromReplay
from .task import Task


@algorithm
class Dreamer(FromReplay):
    """DreamerV3: learns a world model, and trains the policy on steps that the model imagines.

    Hafner et al., 2023, arXiv:2301.04104, at small sizes: for any observation, and any actions
    whose continuous parts are bounded. It needs few frames and much computation for each.
    """

    num_envs: Count = 8
    steps_per_batch: Count = 4
    optim_steps_per_batch: Count = 8
    init_random_frames: Number = 0
    buffer_size: Count = 100_000
    batch_size: Count = 256
    sequence_length: Count = 16
    """steps of the sequences in the replay buffer; batch_size is a multiple of it"""
    horizon: Count = 10
    """steps that are imagined from each step of a sequence"""
    recurrent_size: Count = 64
    """size of the world model's recurrent state"""
    latents: Count = 8
    """one-hot vectors in a latent"""
    classes: Count = 8
    """size of each of them"""
    num_bins: Count = 41
    """bins of the distributions of rewards and values, an odd number"""
    lr: Annotated[Rate, Between(1e-4, 3e-3, log=True)] = 1e-3
    """learning rate of the world model"""
    actor_lr: Annotated[Rate, Between(3e-5, 1e-3, log=True)] = 3e-4
    """learning rate of the actor and the values"""
    num_cells: tuple[Count, ...] = (64,)
    activation: Activation = "silu"
    lmbda: Fraction = 0.95
    """the lambda of imagined returns"""
    entropy_coeff: Annotated[float, Between(1e-4, 1e-2, log=True)] = 3e-4
    """weight of the policy's entropy"""
    tau: Fraction = 0.02
    """rate of the slow copy of the values, one update per optimizer step"""
    max_grad_norm: float | None = 100.0
    """the gradient is clipped to this norm; None for no clipping"""

    actions: ClassVar[Actions] = "bounded"
    tuned_for: ClassVar[Settings] = {
        "CartPole-v1": {"total_frames": 15_000, "eval_interval": 500, **CARTPOLE},
    }

    def build(self, task: Task) -> Trainer:
        """Wire the trainer."""
        if self.compile is not None:
            raise ConfigError(
                f"dreamer: compile={self.compile!r}, but its unrolled world model takes minutes to "
                "compile and gains nothing: leave that out."
            )
        given = {MASK: task.mask_key is not None, CRITIC: task.is_asymmetric}
        if refused := [key for key, is_given in given.items() if is_given]:
            raise ConfigError(
                f"dreamer: {task.env_name} gives {refused[0]!r}, which the world model does not "
                "predict: leave that out."
            )
        two_hot = TwoHot(self.num_bins)
        world = self._world(task, two_hot)
        states = NetworkFactory(
            spaces.Box(-np.inf, np.inf, (world.features,)), self.num_cells, self.activation
        )
        make = partial(mlp, norm=nn.LayerNorm)
        actor = WorldModelPolicy(world, task.mixed_policy(states, make))
        values = zero_output(states.network(self.num_bins, make))
        loss_module = DreamerLoss(
            actor,
            values,
            task.networks.flat(),
            gamma=self.gamma,
            lmbda=self.lmbda,
            horizon=self.horizon,
            entropy_coeff=self.entropy_coeff,
        ).to(task.device)
        rows, sample = self._in_sequences(self.sequence_length)
        keys = loss_module.in_keys
        buffer = ReplayBuffer(rows, batch_size=sample, keys=keys, device=task.device)
        replay = SequenceReplay(buffer, self.sequence_length, hidden_keys=loss_module.hidden_keys)
        hooks = [replay, TargetNetUpdaterHook(SoftUpdate(loss_module, tau=self.tau))]
        rest = [*actor.policy.parameters(), *values.parameters()]
        groups = [{"params": world.parameters()}, {"params": rest, "lr": self.actor_lr}]
        optimizer = FlatAdam(groups, lr=self.lr)
        trainer = self._wired(task, actor, loss_module, hooks, optimizer)
        return task.finish(trainer, actor)

    def _world(self, task: Task, two_hot: TwoHot) -> WorldModel:
        """Return the world model of an environment."""

        def make(in_features: int, out_features: int) -> nn.Module:
            activation = ACTIVATIONS[self.activation]
            return mlp(in_features, out_features, self.num_cells, activation, norm=nn.LayerNorm)

        encoder = task.networks.encoder()
        return WorldModel(
            encoder,
            encoder.out_features,
            task.networks.flat().out_features,
            math.prod(distribution_for(task.action_space).encoded_shape),
            make,
            observed=task.in_keys,
            recurrent_size=self.recurrent_size,
            groups=self.latents,
            classes=self.classes,
            two_hot=two_hot,
        )
