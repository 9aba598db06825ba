"""`SelfPlay`: who plays which seat, what is learned, ratings by hand, the pool's size."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from any_agents import Match
from tensordict import TensorDict
from torch import nn

from hooktrainer import ConfigError, Trainer
from hooktrainer.algorithms import IPPO
from hooktrainer.hooks import SelfPlay
from hooktrainer.loop.cadence import Every
from hooktrainer.networks import AgentsPolicy, CategoricalPolicy, SelfPlayPolicy

PLAYERS = ("self_play", "players")


def ippo(**options) -> IPPO:
    return IPPO(
        num_envs=2,
        steps_per_batch=10,
        mini_batch_size=20,
        num_cells=(4,),
        self_play=2,
        progress_bar=False,
        **{"env": Match, **options},
    )


def example_trainer() -> Trainer:
    return ippo(total_frames=200, eval_episodes=0).trainer()


def example(trainer: Trainer) -> SelfPlay:
    trainer.remove_hook("self_play")
    return SelfPlay(trainer.source.policy, Every(frames=40))


class Always(nn.Module):
    """Prefers one of three actions by far."""

    def __init__(self, action: int = 0) -> None:
        super().__init__()
        self.logits = nn.Parameter(30.0 * torch.eye(3)[action])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.logits.expand(*x.shape[:-1], -1)


def players(size: int = 2, probability: float = 1.0) -> SelfPlayPolicy:
    policy = AgentsPolicy({"agents": CategoricalPolicy(Always(), [("agents", "observation")])})
    return SelfPlayPolicy(policy, "agents", 2, size, probability)


def choose(seats: SelfPlayPolicy, action: int) -> None:
    seats.policy.policies["agents"].network.logits.data = Always(action).logits.data


def acted(seats: SelfPlayPolicy, begins: torch.Tensor, of: torch.Tensor) -> TensorDict:
    data = TensorDict({("agents", "observation"): torch.zeros(len(of), 2, 1)}, [len(of)])
    data["is_init"], data[PLAYERS] = begins.unsqueeze(-1), of
    return seats(data)


def test_past_policies_play_their_seats_from_the_start_of_an_episode():
    torch.manual_seed(0)
    seats = players()
    begins, nobody = torch.ones(400, dtype=torch.bool), torch.full((400, 2), -1)
    alone = acted(seats, begins, nobody)
    assert alone["agents", "learner"].all()  # there is nobody else yet
    for action in (1, 2):
        choose(seats, action)
        seats.add()
    choose(seats, 0)
    out = acted(seats, begins, nobody)
    drawn, action = out["next"][PLAYERS], out["agents", "action"]
    assert (drawn == -1).sum(-1).eq(1).all()
    assert action.equal(drawn + 1)  # member 0 chooses 1, member 1 chooses 2, the learner 0
    assert out["agents", "learner"].equal(drawn == -1)
    kinds, counts = drawn.unique(dim=0, return_counts=True)
    assert len(kinds) == 4  # two members in two seats
    assert counts.min() > 60
    again = acted(seats, ~begins, drawn)
    assert again["next"][PLAYERS].equal(drawn)  # to the end of the episode
    seats.probability = 0.25
    rare = acted(seats, begins, drawn)["agents", "learner"].all(-1).float().mean()
    assert 0.65 < rare < 0.85


def test_a_full_pool_replaces_the_oldest():
    seats = players(size=2)
    hook = SelfPlay(seats, Every(frames=1))
    for action, rating in ((0, 1.0), (1, 2.0), (2, 3.0)):
        choose(seats, action)
        hook.elo = rating
        hook.add()
    chosen = [member.policies["agents"].network.logits.argmax().item() for member in seats.pool]
    assert chosen == [2, 1]
    assert hook.ratings == [3.0, 2.0]
    assert not any(parameter.requires_grad for parameter in seats.pool.parameters())


def test_ratings_by_hand():
    seats = players()
    hook = SelfPlay(seats, Every(frames=1))
    hook.add()
    hook.ratings = [1400.0]
    # Two environments, two steps. A win against member 0, two learners, a draw, and no end.
    who = torch.tensor([[[-1, 0], [0, -1]], [[-1, -1], [-1, 0]]])
    returns = torch.tensor([[[1.0, -1], [0, 0]], [[1, -1], [1, -1]]])
    done = torch.tensor([[True, True], [True, False]])
    batch = TensorDict({("next", *PLAYERS): who, ("agents", "learner"): who < 0}, [2, 2])
    batch["next", "done"] = done.unsqueeze(-1)
    batch["next", "agents", "episode_reward"] = returns.unsqueeze(-1)
    metrics = hook.rate(batch)
    won = 16 * (1 - 1 / 11)  # 400 points below, it was expected to win one in eleven
    expected = 1 / (1 + 10 ** ((400 - 2 * won) / 400))
    assert hook.elo == pytest.approx(1000 + won + 16 * (0.5 - expected))
    assert hook.ratings == pytest.approx([2400 - hook.elo])
    assert metrics["selfplay/win_rate"] == 0.75
    batch["agents", "learned"] = torch.tensor([[[True, True], [True, False]]]).expand(2, 2, 2)
    learned = hook(batch)["agents", "learned"].tolist()
    assert learned == [[[True, False], [False, False]], [[True, True], [True, False]]]


class OneMove(Match):
    """A game of a single step."""

    def step(self, actions):
        self.count = 4
        return super().step(actions)


def test_games_of_one_step_are_rated(logger):
    ippo(
        env=OneMove, total_frames=20, eval_episodes=0, self_play_probability=1.0, loggers=[logger]
    ).train()
    assert "selfplay/win_rate" in logger.rows[-1][1]


def test_only_the_learners_seats_are_trained():
    trainer = example_trainer()
    loss = trainer.loss_module.by_group["agents"]
    assert loss.tensor_keys.mask == ("agents", "learned")
    trainer.train()
    assert trainer.metrics.reported["selfplay/pool"] == 1  # every 20 000 frames


def test_the_final_policy_is_evaluated_once(logger):
    ippo(total_frames=80, eval_interval=40, eval_episodes=1, loggers=[logger]).train()
    logged = [step for step, row in logger.rows if "random/return" in row]
    assert logged == [40, 80]


def test_players_who_differ_are_refused():
    with pytest.raises(ConfigError, match=r"self_play=3 needs one group .* left \(1\), right"):
        IPPO(env=partial(Match, roles=True), total_frames=10, self_play=3).trainer()
