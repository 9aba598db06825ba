"""PPO of skrl, with its SequentialTrainer and one environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from skrl.agents.torch.ppo import PPO, PPO_CFG
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.trainers.torch import SequentialTrainer, SequentialTrainerCfg
from skrl.utils import set_seed
from skrl.utils.model_instantiators.torch import categorical_model, deterministic_model
from torch import nn

from ..adapter import Adapter, Task, Trained, parameters_of, scalars_in

_BATCH = 64


class PPOAdapter(Adapter):
    """Trains with PPO, with its option time_limit_bootstrap."""

    packages = ("skrl",)
    checkpoints = "run/checkpoints/agent_*.pt"
    references: ClassVar[Mapping[str, str]] = {
        "returns": "agents/torch/base.py: at each step record_transition appends the mean until "
        "then; write_tracking_data writes the mean of these",
        "resume": "agents/torch/base.py, write_checkpoint: checkpoint_modules, no random states",
    }

    def train(self, task: Task) -> Trained:
        """Train with one environment; load a checkpoint, and train for the remaining steps."""
        set_seed(task.seed)
        env = wrap_env(task.env())
        parts = {"observation_space": env.observation_space, "action_space": env.action_space}
        parts["device"] = env.device
        layers = [{"name": "net", "input": "OBSERVATIONS", "layers": [64], "activations": "tanh"}]
        policy = categorical_model(**parts, network=layers, output="ACTIONS")
        value = deterministic_model(**parts, network=layers, output="ONE")
        settings = {"rollouts": _BATCH, "learning_epochs": 10, "learning_rate": 3e-3}
        settings |= {"discount_factor": task.gamma, "time_limit_bootstrap": True, "value_clip": 0}
        experiment: dict[str, Any] = {"directory": str(task.directory), "experiment_name": "run"}
        experiment |= {"write_interval": _BATCH, "checkpoint_interval": task.every or 0}
        agent = PPO(
            models={"policy": policy, "value": value},
            memory=RandomMemory(memory_size=_BATCH, num_envs=1, device=env.device),
            cfg=PPO_CFG(**settings, experiment=experiment, **task.options),
            **parts,
        )
        trained = {"timesteps": task.frames - task.collected, "disable_progressbar": True}
        cfg = SequentialTrainerCfg(**trained, headless=True, close_environment_at_exit=False)
        if task.checkpoint:
            agent.load(str(task.checkpoint))
        SequentialTrainer(env=env, agents=agent, cfg=cfg).train()
        agent.writer.flush()
        tags = "Reward / Total reward (mean)", "Episode / Total timesteps (mean)"
        return Trained(
            state=parameters_of(nn.ModuleDict(agent.models)),
            values=lambda codes: value.compute({"observations": torch.from_numpy(codes)})[
                0
            ].detach(),
            returns=scalars_in(task.directory / "run", *tags),
        )
