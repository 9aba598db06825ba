"""What agents say in their ``info``: in the batch and the logs, or refused before the first."""

from __future__ import annotations

import pytest
import torch
from toy_parallel import Talking
from toy_scenarios import Steps

from hooktrainer import ConfigError, VectorCollector
from hooktrainer.algorithms import IPPO


class Saying(Steps):
    """Agent a says ``steps * a``, where agents count from 1; the first one also a matrix."""

    def info(self, agent):
        said = {"height": self.reward(agent), "shape": torch.zeros(len(self.count), 2)}
        if agent.name == "agent_0":
            said["own"] = self.reward(agent).unsqueeze(-1)
        return said


def collector(env, steps=8, num_envs=2, **kwargs):
    return VectorCollector(env, num_envs=num_envs, frames_per_batch=num_envs * steps, **kwargs)


def test_agents_of_pettingzoo_by_hand():
    after = collector(Talking, info_keys=("height", "won")).collect()["next"]
    # The cats leave after 2 and 3 steps, the dog after 4: there the episode ends.
    heights = torch.cat([after["cat", "height"], after["dog", "height"]], 2)[0, :4, :, 0]
    nan = torch.nan
    by_hand = torch.tensor([[11, 21, 31], [12, 22, 32], [nan, 23, 33], [nan, nan, 34]])
    torch.testing.assert_close(heights, by_hand, equal_nan=True)
    assert after["height"][0, :4, 0].tolist() == [21, 22, 28, 34]  # the mean of those who speak
    assert after["height"].dtype == torch.float32
    assert after["dog", "won"].isnan()[0, :4].flatten().tolist() == [True, True, True, False]
    assert after["cat", "won"].isnan().all()
    assert after["won"][0, 3].item() == 1


def test_agents_of_vmas_by_hand():
    after = collector(Saying, info_keys=["height", "own"]).collect()["next"]
    assert after["agents", "height"][0, :2, :, 0].tolist() == [[1, 2], [2, 4]]
    assert after["height"][0, :2, 0].tolist() == [1.5, 3]
    assert after["agents", "own"][0, :2, 0, 0].tolist() == [1, 2]
    assert after["agents", "own"][..., 1, :].isnan().all()
    assert after["own"][0, :2, 0].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("env", "keys", "message"),
    [
        (Talking, ("higt",), r"no 'higt' in the info at an episode's end of all agents of Talking"),
        (Saying, ("higt",), r"no 'higt' .* all agents of Saying.* Did you mean height"),
        (Saying, ("shape",), r"info\['shape'\] of Saying \(agent_0\) has the shape \[2, 2\]"),
        (Saying, ("agents",), r"'agents' is an entry of"),
        (Talking, ("mask",), r"'mask' is an entry of"),
        (Talking, ("reward",), r"'reward' is an entry of"),
        (Talking, "height", r"info_keys='height' is one string"),
    ],
)
def test_a_key_that_cannot_work_is_named_before_the_first_batch(env, keys, message):
    with pytest.raises(ConfigError, match=message):
        collector(env, info_keys=keys)


def test_a_run_logs_their_means_at_the_ends_of_episodes(tmp_path):
    run = IPPO(
        env=Talking,
        total_frames=32,
        num_envs=2,
        steps_per_batch=8,
        mini_batch_size=16,
        num_epochs=1,
        info_keys=("height", "won"),
        eval_interval=16,
        eval_episodes=2,
        logger="csv",
        progress_bar=False,
        run_dir=str(tmp_path / "run"),
    )
    run.train()
    rows = [line.split(",") for line in (tmp_path / "run/metrics.csv").read_text().splitlines()]
    logged = {name: float(value) for _, name, value in rows[1:]}
    assert logged["train/height"] == logged["eval/height"] == 34
    assert logged["train/won"] == logged["eval/won"] == 1
