"""Every hook keeps the contract: found automatically, so that none can be forgotten."""

from __future__ import annotations

import copy
import inspect
import pickle
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torchrl.trainers

import hooktrainer
import hooktrainer.hooks
from hooktrainer import Every, Trainer, TrainerHookBase
from hooktrainer.errors import DuplicateNameError
from hooktrainer.store.tree import flatten
from hooktrainer.testing import FakeCollector, ScriptedLoss, check_hook, make_trainer

HOOKS = {
    name: hook
    for name in hooktrainer.hooks.__all__
    if inspect.isclass(hook := getattr(hooktrainer.hooks, name))
}


class CountingUpdater:
    """A target updater as far as its hook is concerned."""

    def __init__(self) -> None:
        self.counter = 0

    def step(self) -> None:
        self.counter += 1


def estimator(batch):
    return batch


def look_at_policy(frames, policy):
    assert isinstance(policy, Left)


class Episodes(FakeCollector):
    """Writes the return and the length of every episode so far."""

    def _batch(self):
        batch = super()._batch()
        batch["next", "episode_reward"] = batch["next", "reward"].cumsum(-2)
        batch["next", "step_count"] = torch.ones_like(batch["next", "reward"]).long()
        return batch


class Continuous(FakeCollector):
    """Its actions are two numbers each."""

    def _batch(self):
        batch = super()._batch()
        return batch.set("action", batch["observation"][..., :2].tanh())


def model_rollouts(trainer: Trainer) -> TrainerHookBase:
    from hooktrainer.networks import DynamicsEnsemble, TanhGaussianPolicy, mlp
    from hooktrainer.replay import ReplayBuffer

    following = [("next", key) for key in ("observation", "reward", "terminated")]
    keys = ["observation", "action", *following]
    real, imagined = (ReplayBuffer(50, batch_size=4, keys=keys) for _ in range(2))
    hooktrainer.ReplayBufferTrainer(real).register(trainer)
    policy = TanhGaussianPolicy(mlp(4, 4, (8,)), action_features=2)
    model = DynamicsEnsemble(4, 2, num_models=2, num_cells=(8,))
    return hooktrainer.ModelRollouts(
        model, policy, real, imagined, every=Every(batches=2), fit_steps=2, num_rollouts=5
    )


def running_norm() -> torch.nn.Module:
    from hooktrainer.networks import RunningNorm

    return RunningNorm(4)


def replay_buffer(trainer: Trainer) -> TrainerHookBase:
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(30), batch_size=4)
    return hooktrainer.ReplayBufferTrainer(buffer, flatten_tensordicts=True)


def validation(trainer: Trainer) -> TrainerHookBase:
    from tensordict.nn import TensorDictModule
    from torchrl.envs.libs.gym import GymEnv

    env = GymEnv("CartPole-v1", device="cpu", categorical_action_encoding=True)
    policy = TensorDictModule(Left(), ["observation"], ["action"])
    return hooktrainer.LogValidationReward(
        record_interval=2, record_frames=5, policy_exploration=policy, environment=env
    )


class Left(torch.nn.Module):
    """The policy that always goes left."""

    def forward(self, observation):
        return torch.zeros(observation.shape[:-1], dtype=torch.int64)


def evaluate(trainer: Trainer) -> TrainerHookBase:
    return hooktrainer.Evaluate("CartPole-v1", None, every=Every(frames=20), episodes=2)


def recorder(trainer: Trainer) -> TrainerHookBase:
    from hooktrainer.store.run_dir import RunDir

    directory = Path(tempfile.mkdtemp()) / "run"
    return hooktrainer.RunRecorder(RunDir.create(directory), {"lr": 0.1}, report=False)


def scheduler(trainer: Trainer) -> TrainerHookBase:
    schedule = torch.optim.lr_scheduler.StepLR(trainer.optimizer, 2)
    return hooktrainer.LRSchedulerHook(schedule)


FACTORIES: dict[str, Callable[[Trainer], TrainerHookBase]] = {
    "BatchSubSampler": lambda t: hooktrainer.BatchSubSampler(4, sub_traj_len=2),
    "ClearCudaCache": lambda t: hooktrainer.ClearCudaCache(2),
    "CountFramesLog": lambda t: hooktrainer.CountFramesLog(1),
    "SaveOnBest": lambda t: hooktrainer.SaveOnBest("loss/loss"),
    "EarlyStopping": lambda t: hooktrainer.EarlyStopping(monitor="loss/loss", wait_for=0),
    "Evaluate": evaluate,
    "LRSchedulerHook": scheduler,
    "LogEpisodes": lambda t: hooktrainer.LogEpisodes(),
    "LogScalar": lambda t: hooktrainer.LogScalar(),
    "LogTiming": lambda t: hooktrainer.LogTiming(),
    "LogValidationReward": validation,
    "MiniBatches": lambda t: hooktrainer.MiniBatches(4),
    "ModelRollouts": model_rollouts,
    "NanGuard": lambda t: hooktrainer.NanGuard(),
    "PolicySnapshot": lambda t: hooktrainer.PolicySnapshot(
        Left(), every=Every(frames=20), policy_fn=look_at_policy
    ),
    "ObservationNormalizer": lambda t: hooktrainer.ObservationNormalizer(running_norm()),
    "OptimizerHook": lambda t: hooktrainer.OptimizerHook(
        torch.optim.Adam(t.loss_module.parameters(), lr=0.1)
    ),
    "Profiler": lambda t: hooktrainer.Profiler(Path(tempfile.mkdtemp()) / "profile", active=1),
    "ReplayBufferTrainer": replay_buffer,
    "RewardNormalizer": lambda t: hooktrainer.RewardNormalizer(),
    "RewardScaler": lambda t: hooktrainer.RewardScaler(),
    "RunRecorder": recorder,
    "Schedule": lambda t: hooktrainer.Schedule.linear(t.optimizer, "lr", 0.1, 0.0),
    "SelectKeys": lambda t: hooktrainer.SelectKeys(["observation", ("next", "reward")]),
    "TargetNetUpdaterHook": lambda t: hooktrainer.TargetNetUpdaterHook(CountingUpdater()),
    "Tracer": lambda t: hooktrainer.Tracer(Path(tempfile.mkdtemp()) / "trace.json", 2),
    "UTDRHook": lambda t: hooktrainer.UTDRHook(t),
    "UpdateWeights": lambda t: hooktrainer.UpdateWeights(t.collector, 2),
    "ValueEstimatorHook": lambda t: hooktrainer.ValueEstimatorHook(estimator, every_epoch=True),
}

# Hooks that need a trainer without what it usually has.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "OptimizerHook": {"optimizer": None},
    "NanGuard": {"nan_guard": False},
    "LogEpisodes": {"collector": Episodes()},
    "ModelRollouts": {"collector": Continuous()},
}


def prepare(name: str) -> tuple[TrainerHookBase, Trainer]:
    trainer = make_trainer(**copy.deepcopy(ARGUMENTS.get(name, {})))
    return FACTORIES[name](trainer), trainer


def test_every_hook_has_a_factory_here():
    assert set(FACTORIES) == set(HOOKS)


def test_every_hook_is_offered_by_the_package():
    for name in hooktrainer.hooks.__all__:
        assert getattr(hooktrainer, name) is getattr(hooktrainer.hooks, name)
        assert name in hooktrainer.__all__


def test_every_hook_file_is_listed():
    others = {hooktrainer.mask_batch.__module__, hooktrainer.available_hooks.__module__}
    listed = {hook.__module__ for hook in HOOKS.values()} | others
    files = {
        name
        for name in sys.modules
        if name.startswith("hooktrainer.hooks.") and name.count(".") == 2
    }
    assert files == listed


@pytest.mark.parametrize("name", HOOKS)
def test_it_keeps_the_contract(name):
    hook, trainer = prepare(name)
    check_hook(hook, lambda: trainer)


@pytest.mark.parametrize("name", HOOKS)
def test_its_state_reaches_a_fresh_hook(name):
    hook, trainer = prepare(name)
    hook.register(trainer)
    trainer.train()
    fresh, _ = prepare(name)
    fresh.load_state_dict(hook.state_dict())
    (skeleton, tensors), (other_skeleton, other_tensors) = (
        flatten(each.state_dict()) for each in (fresh, hook)
    )
    assert skeleton == other_skeleton
    torch.testing.assert_close(tensors, other_tensors, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", HOOKS)
def test_its_own_state_is_no_difference_to_it(name):
    hook, trainer = prepare(name)
    hook.register(trainer)
    assert hook.differences(hook.state_dict()) == []
    hook.close()


@pytest.mark.parametrize("name", HOOKS)
def test_a_trainer_with_it_saves_loads_and_pickles(name, tmp_path):
    hook, trainer = prepare(name)
    trainer.save_trainer_file = tmp_path / "state.pt"
    hook.register(trainer)
    pickle.loads(pickle.dumps(trainer))
    trainer.train()
    fresh, other = prepare(name)
    fresh.register(other)
    other.load_from_file(tmp_path / "state.pt")
    assert other.collected_frames == 50
    fresh.close()


@pytest.mark.parametrize("name", HOOKS)
def test_a_name_that_is_taken_leaves_no_op_behind(name):
    hook, trainer = prepare(name)
    trainer.register_module("taken", ScriptedLoss())
    before = list(trainer.registry.entries())
    with pytest.raises(DuplicateNameError):
        hook.register(trainer, "taken")
    assert list(trainer.registry.entries()) == before
    hook.close()


@pytest.mark.parametrize("name", HOOKS)
def test_it_is_documented(name):
    hook = HOOKS[name]
    assert hook.__doc__
    for method in ("__call__", "register", "state_dict", "load_state_dict"):
        if method in vars(hook):
            assert vars(hook)[method].__doc__, method


@pytest.mark.parametrize("name", [n for n in HOOKS if hasattr(torchrl.trainers, n)])
def test_it_takes_torchrls_arguments(name):
    theirs = getattr(torchrl.trainers, name)
    for method in ("__init__", "register"):
        their = inspect.signature(inspect.unwrap(getattr(theirs, method))).parameters
        our = inspect.signature(getattr(HOOKS[name], method)).parameters
        wanted = [
            p
            for p, parameter in their.items()
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            and (name, p) != ("LogValidationReward", "recorder")  # torchrl deprecated it
        ]
        assert [p for p in our if p in wanted] == wanted


def test_a_collector_is_not_changed_by_hooks_that_only_look():
    lookers = ("CountFramesLog", "LogScalar", "EarlyStopping", "UTDRHook", "LogTiming")
    batch = next(iter(FakeCollector()))
    before = batch.clone()
    for name in lookers:
        hook, trainer = prepare(name)
        trainer.collector = [batch]
        hook.register(trainer)
        trainer.train()
    assert (batch == before).all()
