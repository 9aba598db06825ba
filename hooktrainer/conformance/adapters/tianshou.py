"""PPO of Tianshou, with its OnPolicyTrainer and TensorboardLogger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OnPolicyTrainer, OnPolicyTrainerParams
from tianshou.utils import TensorboardLogger
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
from torch.utils.tensorboard import SummaryWriter

from ..adapter import Adapter, Task, Trained, parameters_of, scalars_in

_ENVS, _BATCH = 4, 64


class PPOAdapter(Adapter):
    """Trains with PPO."""

    packages = ("tianshou",)
    checkpoints = "checkpoint_*.pth"
    references: ClassVar[Mapping[str, str]] = {
        "returns": "data/collector.py, update_at_episode_done: the length is that of the part of "
        "the episode in the buffer, which trainer.py, OnPolicyTrainer, empties after each batch",
        "resume": "highlevel/persistence.py, get_save_checkpoint_fn: algorithm, no random states",
    }

    def __init__(self) -> None:
        DiscreteActorPolicy._compile()  # by numba: once, not in the process of each training

    def train(self, task: Task) -> Trained:
        """Train with four environments; load a checkpoint, and resume from the log."""
        np.random.seed(task.seed)
        torch.manual_seed(task.seed)
        space, every = task.env().observation_space, task.every or task.frames
        envs = DummyVectorEnv([task.env] * _ENVS)
        envs.seed(task.seed)
        body, critic = (Net(state_shape=space.shape, hidden_sizes=[64]) for _ in range(2))
        actor = DiscreteActor(preprocess_net=body, action_shape=2)
        algorithm: Any = PPO(
            policy=DiscreteActorPolicy(actor=actor, action_space=task.env().action_space),
            critic=DiscreteCritic(preprocess_net=critic),
            optim=AdamOptimizerFactory(lr=3e-3),
            gamma=task.gamma,
            **task.options,
        )
        if task.checkpoint:
            algorithm.load_state_dict(torch.load(task.checkpoint))
        tests = Collector(algorithm, DummyVectorEnv([task.eval_env]))
        writer = SummaryWriter(str(task.directory))
        settings: dict[str, Any] = {"update_step_num_repetitions": 10, "batch_size": 32}
        settings |= {"collection_step_num_env_steps": _BATCH, "show_progress": False}
        params = OnPolicyTrainerParams(
            training_collector=Collector(algorithm, envs, VectorReplayBuffer(_BATCH, _ENVS)),
            test_collector=tests if task.every else None,
            max_epochs=task.frames // every,
            epoch_num_steps=every,
            save_checkpoint_fn=lambda _, frames, __: torch.save(
                algorithm.state_dict(), task.directory / f"checkpoint_{frames}.pth"
            ),
            resume_from_log=task.checkpoint is not None,
            logger=TensorboardLogger(writer, training_interval=_BATCH, save_interval=1),
            **settings,
        )
        trainer: Any = OnPolicyTrainer(algorithm, params)
        trainer.run()
        tags = "training/returns_stat/mean", "training/lens_stat/mean"
        return Trained(
            state=parameters_of(algorithm),
            values=lambda codes: algorithm.critic(codes).detach(),
            frames=trainer._env_step,
            returns=scalars_in(task.directory, *tags),
        )
