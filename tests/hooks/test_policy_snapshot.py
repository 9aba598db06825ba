"""`PolicySnapshot`: when it saves, what it keeps, and that training does not notice."""

from __future__ import annotations

import copy
import os
import random
import signal
import time
from contextlib import suppress

import numpy as np
import pytest
import torch
from marks import slow_except
from outcomes import same
from safetensors.torch import load_file
from sealed import change_facts
from tensordict import TensorDict
from torch import nn

from hooktrainer import (
    ConfigError,
    Evaluate,
    Every,
    ObservationNormalizer,
    PolicySnapshot,
    RunDir,
    Trainer,
    VectorCollector,
    list_policies,
    load_policy,
)
from hooktrainer.base.child_program import ChildProgram
from hooktrainer.networks import CategoricalPolicy, RunningNorm, mlp
from hooktrainer.policies import Evaluation
from hooktrainer.store import Best, Last


class Reinforce(nn.Module):
    """Makes rewarded actions likelier."""

    def __init__(self, policy: CategoricalPolicy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, data):
        log_prob, _ = self.policy.log_prob_and_entropy([data["observation"]], data["action"])
        weight = data["next", "episode_reward"].squeeze(-1) - 10.0
        return TensorDict(loss_policy=-(log_prob * weight).mean())


def make_trainer(total_frames=200, **options) -> Trainer:
    torch.manual_seed(0)
    policy = CategoricalPolicy(mlp(4, 2, (16,)))
    loss = Reinforce(policy)
    return Trainer(
        collector=VectorCollector("CartPole-v1", policy, num_envs=2, frames_per_batch=20),
        total_frames=total_frames,
        optim_steps_per_batch=2,
        loss_module=loss,
        optimizer=torch.optim.Adam(loss.parameters(), lr=1e-2),
        progress_bar=False,
        seed=3,
        **options,
    )


def snapshot(trainer, run, **options) -> PolicySnapshot:
    hook = PolicySnapshot(
        trainer.loss_module.policy, "CartPole-v1", run, **{"episodes": 0, "report": False} | options
    )
    hook.register(trainer)
    return hook


def frames_of(run) -> list[int]:
    return [saved.frames for saved in list_policies(run)]


def test_at_the_start_at_the_cadence_and_at_the_end(tmp_path):
    trainer, seen = make_trainer(), []
    hook = snapshot(
        trainer,
        tmp_path,
        every=Every(frames=60),
        policy_fn=lambda frames, policy: seen.append((frames, policy)),
    )
    before = hook.policy.network[0].weight.detach().clone()
    trainer.train()
    assert [frames for frames, _ in seen] == [0, 60, 120, 180, 200]
    assert all(policy is trainer.loss_module.policy for _, policy in seen)
    assert frames_of(tmp_path) == [0, 60, 120, 180, 200]
    path = tmp_path / "policies/step_000000000000"
    weights = load_file(path / "policy.safetensors")
    assert torch.equal(weights["weights/policy.network.0.weight"], before)
    seconds = [saved.seconds for saved in list_policies(tmp_path)]
    assert seconds == sorted(seconds)


def test_its_seconds_include_the_batch_after_which_it_was_taken(tmp_path):
    trainer = make_trainer(total_frames=40)
    trainer.register_op("post_steps", lambda: time.sleep(0.02))
    snapshot(trainer, tmp_path, every=Every(frames=20))
    trainer.train()
    first, second, third = (saved.seconds for saved in list_policies(tmp_path))
    assert first == 0.0
    assert 0.02 <= second <= third - 0.02
    assert third <= trainer.progress.seconds + 0.001  # they are rounded


def test_it_takes_the_first_evaluation_without_a_collector(tmp_path):
    trainer = make_trainer()
    policy = trainer.loss_module.policy
    with pytest.raises(ConfigError, match="need an Evaluate hook: set eval_episodes above 0"):
        PolicySnapshot.of(trainer, tmp_path)
    options = {"every": Every(frames=100), "episodes": 1}
    own = Evaluate("CartPole-v1", policy, collector=VectorCollector, group="own", **options)
    own.register(trainer, "own")
    with pytest.raises(ConfigError, match="snapshots act in one Gymnasium environment, and"):
        PolicySnapshot.of(trainer, tmp_path)
    Evaluate("Acrobot-v1", policy, **options).register(trainer)
    assert PolicySnapshot.of(trainer, tmp_path, snapshots=2).env == "Acrobot-v1"
    nothing_saved = PolicySnapshot.of(trainer, snapshots=2, policy_fn=print)
    assert nothing_saved.env == "CartPole-v1"


@pytest.mark.usefixtures("warm_python")
def test_ctrl_c_leaves_policies_that_a_resume_plays(tmp_path, monkeypatch, capfd):
    def wait(self, seconds: float | None = None) -> None:
        monkeypatch.undo()  # closing the program waits for its end
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(30)

    monkeypatch.setattr(ChildProgram, "wait", wait)
    trainer = make_trainer(total_frames=40, save_trainer_file=tmp_path / "state.pt")
    long = 1_000_000  # episodes, which no machine plays before training ends
    snapshot(trainer, tmp_path, snapshots=2, episodes=long, report=True)
    trainer.train()
    assert trainer.collected_frames == 40
    out, err = capfd.readouterr()
    assert out.rstrip().endswith("plays the rest.")
    assert "finishing the batch" not in err

    again = make_trainer(total_frames=40)
    snapshot(again, tmp_path, snapshots=2, episodes=1)
    again.load_from_file(tmp_path / "state.pt")
    again.train()
    assert [saved.frames for saved in list_policies(tmp_path) if saved.evaluation] == [0, 40]


def test_the_last_policy_has_the_last_statistics_of_observations(tmp_path):
    policy = CategoricalPolicy(nn.Sequential(RunningNorm(4), mlp(4, 2, (16,))))
    trainer = Trainer(
        collector=VectorCollector("CartPole-v1", policy, num_envs=2, frames_per_batch=20),
        total_frames=40,
        optim_steps_per_batch=1,
        loss_module=(loss := Reinforce(policy)),
        optimizer=torch.optim.Adam(loss.parameters(), lr=1e-2),
        progress_bar=False,
    )
    options = {"every": Every(frames=20), "episodes": 0}
    PolicySnapshot(policy, "CartPole-v1", tmp_path, **options).register(trainer)
    ObservationNormalizer(policy.network[0]).register(trainer)
    trainer.train()
    weights = load_file(tmp_path / "policies/step_000000000040/policy.safetensors")
    for name, live in policy.network[0].state_dict().items():
        if (kept := weights.get(f"weights/policy.network.0.{name}")) is not None:
            assert torch.equal(kept, live)
    assert "weights/policy.network.0._scale" in weights


def test_the_last_policy_is_the_trained_one(tmp_path):
    trainer = make_trainer()
    snapshot(trainer, tmp_path, snapshots=3)
    trainer.train()
    assert frames_of(tmp_path) == [0, 100, 200]
    observation = torch.randn(50, 4)
    logits = trainer.loss_module.policy.network(observation)
    loaded = load_policy(tmp_path)
    assert loaded(observation.numpy()).tolist() == logits.argmax(-1).tolist()


def test_one_hot_actions(tmp_path):
    trainer = make_trainer(total_frames=20)
    every, policy = Every(frames=20), nn.Linear(4, 2)
    PolicySnapshot(
        policy, "CartPole-v1", tmp_path, every=every, categorical_actions=False, episodes=0
    ).register(trainer)
    trainer.train()
    observation = torch.randn(9, 4)
    expected = policy(observation).argmax(-1).tolist()
    assert load_policy(tmp_path)(observation.numpy()).tolist() == expected


def test_policies_carry_the_id_of_their_run_and_those_of_another_are_left_alone(tmp_path):
    for name in ("other", "run"):
        RunDir.create(tmp_path / name)
    first = make_trainer()
    snapshot(first, tmp_path / "other", every=Every(frames=100))
    first.train()
    other, own = (RunDir(tmp_path / name).run_id for name in ("other", "run"))
    saved = list_policies(tmp_path / "other")
    assert [(p.frames, p.run_id) for p in saved] == [(0, other), (100, other), (200, other)]
    (tmp_path / "run" / "policies").mkdir()
    saved[1].path.rename(tmp_path / "run" / "policies" / "step_000000000130")

    second = make_trainer()
    snapshot(second, tmp_path / "run", snapshots=2)
    second.train()
    found = {(p.frames, p.run_id) for p in list_policies(tmp_path / "run")}
    assert found == {(0, own), (100, other), (200, own)}


def draw(frames, policy):
    random.random()
    np.random.random()
    torch.randn(3)


@pytest.mark.usefixtures("warm_python")
@pytest.mark.slow
def test_training_is_the_same_bit_for_bit_with_and_without(tmp_path):
    plain = make_trainer()
    plain.train()
    watched = make_trainer()
    snapshot(watched, tmp_path, snapshots=5, policy_fn=draw, episodes=2)
    watched.train()
    assert same(*(dict(trainer.loss_module.state_dict()) for trainer in (plain, watched)))
    assert [saved.evaluation.episodes for saved in list_policies(tmp_path)] == [2] * 5


def test_the_best_and_those_without_evaluation_are_kept(tmp_path):
    trainer = make_trainer(total_frames=100)
    returns = {0: 5.0, 20: 9.0, 40: 3.0}

    def rate(frames, policy):
        for saved in list_policies(tmp_path):
            if saved.evaluation is None and saved.frames in returns:
                evaluation = Evaluation(0, (returns[saved.frames],), (1,))
                with suppress(FileNotFoundError):  # its score known, it is deleted at once
                    change_facts(saved.path, evaluation=evaluation.encode())

    hook = snapshot(
        trainer,
        tmp_path,
        every=Every(frames=20),
        keep=Last(1) | Best(1, "eval/return"),
        policy_fn=rate,
    )
    trainer.train()
    hook.close()
    assert frames_of(tmp_path) == [20, 60, 80, 100]


@pytest.mark.parametrize("options", slow_except([{"snapshots": 6}, {"every": Every(frames=50)}], 0))
def test_a_resumed_run_has_no_policy_twice_and_lacks_none(options, tmp_path):
    whole = make_trainer(total_frames=400)
    snapshot(whole, tmp_path / "whole", **options)
    whole.train()

    seen = []
    options = options | {"policy_fn": lambda frames, policy: seen.append(frames)}
    first = make_trainer(total_frames=400, save_trainer_file=tmp_path / "state.pt")
    snapshot(first, tmp_path / "parts", **options)
    state = {}

    def stop(batch) -> None:
        if first.collected_frames == 160:
            state.update(copy.deepcopy(first.state_dict()))
        if first.collected_frames == 240:  # what is saved from here on is done again
            raise KeyboardInterrupt

    first.register_op("post_steps_log", stop, priority=-1)
    with pytest.raises(KeyboardInterrupt):
        first.train()
    assert max(frames_of(tmp_path / "parts")) > 160
    there = []

    rest = make_trainer(total_frames=400)
    snapshot(rest, tmp_path / "parts", **options)
    rest.load_state_dict(state)
    rest.register_op("batch_process", lambda batch: there.append(frames_of(tmp_path / "parts")))
    rest.train()
    assert max(there[0]) <= 160  # what is done again is not there twice, nor before its time
    assert frames_of(tmp_path / "parts") == frames_of(tmp_path / "whole")
    assert seen.count(0) == 1
    for frames in frames_of(tmp_path / "whole"):
        contents = [
            (tmp_path / run / f"policies/step_{frames:012d}/policy.safetensors").read_bytes()
            for run in ("whole", "parts")
        ]
        assert contents[0] == contents[1]


def test_an_early_end_leaves_as_many_evenly_spaced(tmp_path):
    trainer = make_trainer(total_frames=4_000)
    trainer.register_op(
        "post_steps", lambda: trainer.collected_frames >= 400 and trainer.request_stop("enough")
    )
    snapshot(trainer, tmp_path, snapshots=5)
    trainer.train()
    # Of those at 0, 80, 140, 200, 260, 320, 380, 400.
    assert frames_of(tmp_path) == [0, 80, 200, 320, 400]


def look(frames, policy):
    assert isinstance(policy, torch.nn.Linear)


def example(trainer):
    return PolicySnapshot(torch.nn.Linear(4, 2), every=Every(frames=20), policy_fn=look)
