from __future__ import annotations

import pytest
import torch
from no_waiting import NoWaiting, OnDevice
from tensordict import TensorDict

from hooktrainer import HookError, LogEpisodes
from hooktrainer.testing import FakeCollector, tiny_trainer


def batch(done, returns, lengths=None) -> TensorDict:
    shape = torch.tensor(done).shape
    following = {
        "done": torch.tensor(done).bool().unsqueeze(-1),
        "episode_reward": torch.tensor(returns).float().unsqueeze(-1),
    }
    if lengths is not None:
        following["step_count"] = torch.tensor(lengths).unsqueeze(-1)
    return TensorDict({"next": following}, shape)


def test_every_episode_counts_once(logger):
    batches = [
        batch([[0, 1, 1, 0]], [[0, 5, 1, 9]], [[1, 2, 1, 9]]),
        batch([[0, 0, 0, 0]], [[7, 7, 7, 7]], [[1, 2, 3, 4]]),
        batch([[1, 0, 0, 0]], [[9, 7, 7, 7]], [[6, 2, 3, 4]]),
    ]
    trainer = tiny_trainer(collector=batches, total_frames=12, logger=logger, log_interval=100)
    LogEpisodes().register(trainer)
    trainer.train()
    assert logger.column("train/return") == {4: 3.0, 12: 9.0}
    assert logger.column("train/length") == {4: 1.5, 12: 6.0}
    assert logger.column("train/episodes") == {4: 2.0, 12: 3.0}


def test_a_window_is_the_mean_over_its_episodes_not_over_its_batches(logger):
    batches = [
        batch([0], [0]),
        batch([1, 1, 1], [2, 2, 2]),
        batch([1, 0, 0], [6, 0, 0]),
    ]
    trainer = tiny_trainer(collector=batches, logger=logger)
    LogEpisodes("g", log_pbar=True).register(trainer)
    trainer.train()
    assert logger.column("g/return") == {7: 3.0}  # (2 + 2 + 2 + 6) / 4
    assert list(trainer.metrics.pbar_names) == ["g/return"]


def test_without_returns_it_says_where_they_come_from():
    td = batch([1], [1])
    del td["next", "episode_reward"]
    with pytest.raises(HookError, match="RewardSum"):
        LogEpisodes()(td)


def of_two_agents() -> TensorDict:
    td = batch([[0, 1, 1]], [[0, 5, 1]])
    td["next", "pair"] = TensorDict({}, [1, 3, 2])
    own = torch.tensor([[[0.0, 0], [4, 6], [0, 2]]])
    td["next", "pair", "episode_reward"] = own.unsqueeze(-1)
    return td


def test_several_agents_have_returns_by_group_and_by_agent():
    metrics = LogEpisodes(agents={"pair": ["a", "b"]})(of_two_agents())
    logged = {name: metrics[f"train/{name}"] for name in RETURNS}
    values = {name: samples.values[samples.where].tolist() for name, samples in logged.items()}
    assert values == {
        "return": [5, 1],
        "pair/return": [5, 1],
        "pair/a/return": [4, 0],
        "pair/b/return": [6, 2],
    }


RETURNS = ("return", "pair/return", "pair/a/return", "pair/b/return")


class Episodes(FakeCollector):
    """Writes the return and the length of every episode so far."""

    def _batch(self):
        batch = super()._batch()
        batch["next", "episode_reward"] = batch["next", "reward"].cumsum(-2)
        batch["next", "step_count"] = torch.ones_like(batch["next", "reward"]).long()
        return batch


def example_trainer():
    return tiny_trainer(collector=Episodes())


def test_on_an_accelerator_it_logs_the_same_without_synchronizing(logger):
    batches = [
        batch([[0, 0, 0, 0]], [[7, 7, 7, 7]], [[1, 2, 3, 4]]),
        batch([[0, 1, 1, 0]], [[0, 5, 1, 9]], [[1, 2, 1, 9]]),
        batch([[0, 0, 0, 0]], [[7, 7, 7, 7]], [[1, 2, 3, 4]]),
        batch([[1, 0, 0, 0]], [[9, 7, 7, 7]], [[6, 2, 3, 4]]),
    ]
    of_device = [each.apply(lambda x: x.as_subclass(OnDevice)) for each in batches]
    for log_interval in (1, 100):
        columns = []
        for given in (batches, of_device):
            logger.rows.clear()
            trainer = tiny_trainer(
                collector=given, total_frames=16, logger=logger, log_interval=log_interval
            )
            LogEpisodes().register(trainer)
            trainer.train()
            assert trainer.metrics.latest("train/return") == 9.0
            columns.append([logger.column(f"train/{name}") for name in ("return", "length")])
            assert list(logger.column("train/episodes").values())[-1] == 3.0
        assert columns[0] == columns[1]
    hook = LogEpisodes()
    with NoWaiting():
        hook(batches[1].apply(lambda x: x.as_subclass(OnDevice)))
    assert hook.state_dict() == {"_episodes": 2}
