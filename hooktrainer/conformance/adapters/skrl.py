"""PPO of skrl, with its SequentialTrainer and one environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from skrl.agents.torch.ppo import PPO, PPO_CFG
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model
from skrl.trainers.torch import SequentialTrainer, SequentialTrainerCfg
from skrl.utils import set_seed
from torch import nn

from ..adapter import Adapter, Task, Trained, parameters_of

_BATCH = 64


class _Network(Model):
    """One hidden layer."""

    def __init__(self, env: Any, outputs: int) -> None:
        spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
        Model.__init__(self, **spaces, device=env.device)
        size = env.observation_space.shape[0]
        self.net = nn.Sequential(nn.Linear(size, 64), nn.Tanh(), nn.Linear(64, outputs))

    def compute(self, inputs: dict[str, Any], role: str = "") -> Any:
        return self.net(inputs["observations"]), {}


class _Policy(CategoricalMixin, _Network):
    def __init__(self, env: Any) -> None:
        _Network.__init__(self, env, 2)
        CategoricalMixin.__init__(self)


class _Value(DeterministicMixin, _Network):
    def __init__(self, env: Any) -> None:
        _Network.__init__(self, env, 1)
        DeterministicMixin.__init__(self)


class _Agent(PPO):
    """Keeps what is logged."""

    def write_tracking_data(self, *, timestep: int, timesteps: int) -> None:
        names = "Reward / Total reward (mean)", "Episode / Total timesteps (mean)"
        if names[0] in self.tracking_data:
            means = (float(np.mean(self.tracking_data[name])) for name in names)
            self.rows = [*getattr(self, "rows", []), (timestep, *means)]
        super().write_tracking_data(timestep=timestep, timesteps=timesteps)


class _Memory(RandomMemory):
    """Keeps the observations in mini-batches."""

    def sample(self, *args: Any, **kwargs: Any) -> Any:
        batches = super().sample(*args, **kwargs)
        self.seen = [*getattr(self, "seen", []), *(batch[0].numpy() for batch in batches)]
        return batches


class SkrlAdapter(Adapter):
    """Trains with PPO, with its option time_limit_bootstrap."""

    packages = ("skrl",)
    references: ClassVar[Mapping[str, str]] = {
        "returns": "agents/torch/base.py: at each step record_transition appends the mean until "
        "then; write_tracking_data writes the mean of these",
        "resume": "agents/torch/base.py, write_checkpoint: checkpoint_modules, no random states",
    }

    def train(self, task: Task) -> Trained:
        """Train with one environment."""
        return self._train(task, None)

    def resume(self, task: Task) -> Trained:
        """Load the latest checkpoint, and train for the remaining steps."""
        saved = (task.directory / "run" / "checkpoints").glob("agent_*.pt")
        return self._train(task, max(saved, key=_frames_in))

    def _train(self, task: Task, latest: Path | None) -> Trained:
        set_seed(task.seed)
        env = wrap_env(task.env())
        settings = {"rollouts": _BATCH, "learning_epochs": 10, "learning_rate": 3e-3}
        settings |= {"discount_factor": task.gamma, "time_limit_bootstrap": True, "value_clip": 0}
        experiment: dict[str, Any] = {"directory": str(task.directory), "experiment_name": "run"}
        experiment |= {"write_interval": _BATCH, "checkpoint_interval": task.every or 0}
        agent = _Agent(
            models={"policy": _Policy(env), "value": _Value(env)},
            memory=_Memory(memory_size=_BATCH, num_envs=1, device=env.device),
            observation_space=env.observation_space,
            action_space=env.action_space,
            device=env.device,
            cfg=PPO_CFG(**settings, experiment=experiment, **task.options),
        )
        frames = 0 if latest is None else _frames_in(latest)
        trained = {"timesteps": task.frames - frames, "disable_progressbar": True}
        cfg = SequentialTrainerCfg(**trained, headless=True, close_environment_at_exit=False)
        trainer = SequentialTrainer(env=env, agents=agent, cfg=cfg)
        if latest is not None:
            agent.load(str(latest))
        trainer.train()
        policy, value = agent.models["policy"], agent.models["value"]
        saved = (task.directory / "run" / "checkpoints").glob("agent_*.pt")
        return Trained(
            state=parameters_of(policy, "policy.") | parameters_of(value, "value."),
            values=lambda codes: value.net(torch.from_numpy(codes)).detach(),
            frames=None,
            returns=getattr(agent, "rows", []),
            saved=[_frames_in(path) for path in saved],
            trained_on=agent.memory.seen,
        )


def _frames_in(path: Path) -> int:
    return int(path.stem.split("_")[-1])
