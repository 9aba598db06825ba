"""`SelfPlay`: trains a policy in games against its own past."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase
from torch import Tensor

from ..collect import AgentGroup, VectorCollector
from ..collect.agent_groups import GroupsFormat
from ..loop.cadence import Every
from ..loop.hook import TrainerHookBase
from ..loop.loop import Loop
from ..loop.metrics import Latest
from ..networks import AgentsPolicy, SelfPlayPolicy
from ..networks.head import Actor
from ..networks.self_play import PLAYERS
from .evaluate import Evaluate

_START = 1000.0  # Elo rating of the untrained policy
_RATE = 16.0  # most points that a game moves


class SelfPlay(TrainerHookBase):
    """Adds past policies to a pool of opponents, and rates them and the learner.

    Elo ratings (Elo, 1978) begin at 1000, the untrained policy, and change with every game of the
    learner against a past policy; the higher return wins. A new member has the learner's
    rating. If the pool is full, it replaces the oldest, also in running games.

    Logs ``selfplay/elo`` and ``selfplay/win_rate`` of the learner against the pool, where a draw
    counts half, ``selfplay/pool_elo``, the mean of its members, and ``selfplay/pool``, their
    number. ``versus``, which it registers, logs ``random/return``, the learner's return.

    Args:
        policy: What collects.
        every: When to add the policy to the pool; the untrained one is the first.
        versus: Plays against random opponents, as from `against_random`; ``None`` for nothing.

    Attributes:
        elo: Rating of the learner.
        ratings: Those of the pool, by place.
    """

    saved_attributes = ("elo", "ratings")

    def __init__(
        self, policy: SelfPlayPolicy, every: Every, versus: Evaluate | None = None
    ) -> None:
        self.policy, self.adds, self.versus = policy, every, versus
        self.elo, self.ratings = _START, list[float]()

    def register(self, trainer: Loop, name: str = "self_play") -> None:
        """Register after value estimators, since it restricts what is learned."""
        trainer.register_module(name, self)
        trainer.register_op("batch_process", self)
        trainer.register_op("pre_steps_log", self.rate)
        trainer.register_op("post_steps", self.add, every=self.adds)
        if self.versus is not None:
            self.versus.register(trainer, f"{name}_{self.versus.group}")

    def __call__(self, batch: TensorDictBase) -> TensorDictBase:
        """Restrict ``(group, "learned")`` to the learner's seats."""
        group = self.policy.group
        learner, learned = batch[group, "learner"], batch.get((group, "learned"), None)
        return batch.set((group, "learned"), learner if learned is None else learned & learner)

    def rate(self, batch: TensorDictBase) -> dict[str, Any]:
        """Rate the games that ended in the batch; return the metrics."""
        done = batch["next", "done"].squeeze(-1).mT  # in the order of time
        # Those under "next" played; before the first step no opponent has been drawn.
        players = batch["next"][PLAYERS].transpose(0, 1)[done]
        returns = batch["next", self.policy.group, "episode_reward"].squeeze(-1)
        returns = returns.transpose(0, 1)[done]
        against = (players >= 0).any(-1)
        players, returns = players[against], returns[against]
        own = players < 0
        mine = torch.where(own, returns, 0.0).sum(-1)
        theirs = torch.where(own, 0.0, returns).sum(-1) / max(players.shape[-1] - 1, 1)
        scores = (0.5 + 0.5 * (mine - theirs).sign()).tolist()
        for member, score in zip(players.amax(-1).tolist(), scores, strict=True):
            expected = 1 / (1 + 10 ** ((self.ratings[member] - self.elo) / 400))
            self.elo += _RATE * (score - expected)
            self.ratings[member] -= _RATE * (score - expected)
        metrics: dict[str, Any] = {
            "selfplay/elo": Latest(self.elo),
            "selfplay/pool_elo": Latest(sum(self.ratings) / max(len(self.ratings), 1)),
            "selfplay/pool": Latest(len(self.ratings)),
            "log_pbar": ["selfplay/elo"],
        }
        if scores:
            metrics["selfplay/win_rate"] = sum(scores) / len(scores)
        return metrics

    def add(self) -> None:
        """Add the present policy to the pool."""
        place = self.policy.add()
        self.ratings[place : place + 1] = [self.elo]

    def on_train_start(self, trainer: Loop) -> None:
        """Add the untrained policy; a resumed run already has it."""
        if not self.ratings:
            self.add()

    def state_dict(self) -> dict[str, Any]:
        """Return the pool, and the ratings."""
        policy = self.policy
        pool = {"pool": dict(policy.pool.state_dict()), "count": int(policy.count)}
        return super().state_dict() | pool

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict(state_dict)
        self.policy.pool.load_state_dict(state_dict["pool"])
        self.policy.count.fill_(state_dict["count"])

    def mismatches(self, saved: Mapping[str, Any]) -> list[str]:
        """List whether the saved pool is of another size."""
        here, there = (
            len({key.split(".")[0] for key in keys})
            for keys in (self.policy.pool.state_dict(), saved["pool"])
        )
        return (
            [] if here == there else [f"the pool has {here} places here and {there} in the state"]
        )


# -- Evaluation against random opponents.


def against_random(policy: AgentsPolicy, group: AgentGroup, **options: Any) -> Evaluate:
    """Return an evaluation against random opponents; environments alternate the policy's seat.

    Args:
        policy: The policy of a group.
        group: The agents, which are all that there are.
        **options: Arguments of `Evaluate`, such as ``env``, ``every`` and ``episodes``.
    """
    versus = _AgainstRandom(policy, group)
    return Evaluate(policy=versus, collector=_OneSeat, group="random", log_pbar=False, **options)


class _AgainstRandom(Actor):
    """Plays one seat by a policy, the others at random; environment i is played from seat i."""

    def __init__(self, policy: AgentsPolicy, group: AgentGroup) -> None:
        super().__init__()
        self.policy, self.group = policy, group
        self.in_keys, self.out_keys = policy.in_keys, policy.out_keys
        self._format = GroupsFormat([group])

    def act(self, *inputs: Tensor) -> dict[NestedKey, Tensor]:
        out, key = self.policy.act(*inputs), (self.group.name, "action")
        own, seats = out[key], len(self.group.agents)
        uniform = torch.rand(len(own), self._format.numbers, device=own.device)
        drawn = self._format.sample(uniform, dict(zip(self.in_keys, inputs, strict=True)))[key]
        seat = torch.arange(len(own), device=own.device).unsqueeze(-1) % seats
        plays = torch.arange(seats, device=own.device) == seat
        plays = plays.view(*plays.shape, *[1] * (own.ndim - 2))
        return {**out, key: torch.where(plays, own, drawn)}


class _OneSeat(VectorCollector):
    """A collector of the returns of the seats that `_AgainstRandom` plays by the policy."""

    def collect(self) -> Any:
        batch = super().collect()
        (group,) = self.envs.groups
        returns = batch["next", group.name, "episode_reward"]
        rows = torch.arange(len(returns), device=returns.device)
        batch["next", "episode_reward"] = returns[rows, :, rows % len(group.agents)]
        return batch
