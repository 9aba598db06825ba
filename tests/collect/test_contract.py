"""Every collector keeps the contract; so it can be collected ahead and is resumed exactly."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import pytest
import torch
from strangers import OnlySome, Walks
from tensordict import TensorDict
from torch.utils.data import DataLoader
from toy_envs import Counter

import hooktrainer
from hooktrainer import ConfigError, OverlappedCollector, VectorCollector
from hooktrainer.collect import Collector, adapt
from hooktrainer.collect.adapt import AdaptedCollector
from hooktrainer.data import DataCollector, Dataset
from hooktrainer.errors import CollectorError
from hooktrainer.networks import CategoricalPolicy, mlp
from hooktrainer.testing import FakeCollector, check_collector, tiny_trainer


def a_list() -> Any:
    torch.manual_seed(5)
    walks = Walks()
    return [walks.collect() for _ in range(6)]


def a_data_set() -> DataCollector:
    torch.manual_seed(5)
    transitions = Walks(num_envs=4, time=8).collect().exclude("weight").reshape(-1)
    return DataCollector(Dataset(transitions, [], None).transitions, 8, replacement=True)


def data_of_workers() -> DataCollector:
    return DataCollector(list(range(40)), 8, names=("x",), num_workers=1, epochs=1)


def of_torchrl() -> Any:
    from torchrl.collectors import Collector
    from torchrl.envs import GymEnv, SerialEnv

    env = SerialEnv(2, lambda: GymEnv("CartPole-v1", categorical_action_encoding=True))
    options = {"frames_per_batch": 120, "total_frames": 600}
    policy = CategoricalPolicy(mlp(4, 2))
    return Collector(env, policy, auto_register_policy_transforms=False, **options)


def made_of(env: Any, **env_kwargs: Any) -> VectorCollector:
    options = {"num_envs": 2, "frames_per_batch": 40, "total_frames": 100}
    return VectorCollector(env, env_kwargs=env_kwargs, **options)


MADE: dict[str, list[Callable[[], Any]]] = {
    "VectorCollector": [
        lambda: VectorCollector("CartPole-v1", num_envs=2, frames_per_batch=100),
        lambda: made_of(Counter),
        lambda: VectorCollector("torch/CartPole-v1", num_envs=2, frames_per_batch=100),
        lambda: made_of("torch/Pendulum-v1", max_episode_steps=9),
        lambda: VectorCollector(
            "torch/CartPole-v1", CategoricalPolicy(mlp(4, 2)), num_envs=4, frames_per_batch=200
        ),
    ],
    "OverlappedCollector": [
        lambda: OverlappedCollector(Walks(), 1, mode="process"),
        lambda: OverlappedCollector(Walks(total_frames=100), 1, mode="thread"),
        lambda: OverlappedCollector(a_list(), 2, mode="process"),
        lambda: OverlappedCollector(a_data_set(), 1, mode="process"),
        lambda: OverlappedCollector(Walks(), 0),
    ],
    "SequenceCollector": [a_list],
    "DataCollector": [
        a_data_set,
        lambda: DataCollector(TensorDict({"x": torch.arange(24.0)}, [24]), 8, epochs=2),
        lambda: DataCollector(DataLoader(range(40), 8, shuffle=True), names=("x",)),
    ],
    "FakeCollector": [lambda: FakeCollector(num_batches=6)],
    "AdaptedCollector": [of_torchrl, OnlySome],
    "Walks": [Walks, lambda: Walks(total_frames=100)],
}
ELSEWHERE = {
    "RayCollector": "tests/run/ranks/test_ray.py, which has a cluster",
    "CompletionCollector": "tests/sequences/test_completion_collector.py, which has a model",
    "RemoteCollector": "those that derive from it",
    "Collector": "those that derive from it",
}


def found() -> set[str]:
    """Every class of the package that is a collector, by what it derives from or by its name."""
    names = set()
    for module in pkgutil.walk_packages(hooktrainer.__path__, "hooktrainer."):
        if module.name.endswith("__main__"):
            continue
        try:
            content = vars(importlib.import_module(module.name))
        except ModuleNotFoundError as error:  # of an extra
            if str(error.name).startswith("hooktrainer"):
                raise
            continue
        names |= {
            value.__name__
            for value in content.values()
            if inspect.isclass(value)
            and value.__module__ == module.name
            and not value.__name__.startswith("_")
            and (issubclass(value, Collector) or value.__name__.endswith("Collector"))
        }
    return names


def test_every_collector_of_the_package_is_checked():
    assert found() - MADE.keys() - ELSEWHERE.keys() == set()


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "make"),
    [
        *((name, make) for name, makes in MADE.items() for make in makes),
        pytest.param("DataCollector", data_of_workers, marks=pytest.mark.slow),
    ],
)
def test_it_keeps_the_contract(name, make):
    check_collector(make, batches=3)


class Shots(gym.Env[Any, Any]):
    """The second of eight shots hits: an episode ends with the observation that it begins with."""

    observation_space = action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return 0, {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return int(self.count == 2), 0.0, self.count == 8, False, {}


def test_final_observations_may_be_those_of_a_beginning_by_chance():
    check_collector(lambda: VectorCollector(Shots, num_envs=2, frames_per_batch=16))


# -- the checks notice what is broken ------------------------------------------------------------


def spoiled(change: Callable[[Any, Any], Any]) -> type[Walks]:
    """Walks whose batches are what ``change`` makes of the collector and a batch."""

    class Spoiled(Walks):
        def collect(self):
            return change(self, super().collect())

    return Spoiled


class Missized(Walks):
    def __init__(self):
        super().__init__()
        self.frames_per_batch = 7


class Miscounted(Walks):
    def collect(self):
        batch = super().collect()
        self.frames += 1
        return batch


class Reused(Walks):
    kept: Any = None

    def collect(self):
        batch = super().collect()
        self.kept = batch if self.kept is None else self.kept.copy_(batch)
        return self.kept


def without_a_dimension(walks, batch):
    return batch.set(("next", "reward"), batch["next", "reward"].squeeze(-1))


def undone(walks, batch):
    return batch.set(("next", "done"), ~batch["next", "done"])


def followed_by_the_next_episode(walks, batch):
    after = torch.cat([batch["observation"][:, 1:], walks._observe().unsqueeze(1)], 1)
    return batch.set(("next", "observation"), after)


def disordered(walks, batch):
    return batch.set("observation", batch["observation"].flip(1))


class Unseeded(Walks):
    def set_seed(self, seed, static_seed=False):
        super().set_seed(torch.seed() % 2**31)


class Forgetful(Walks):
    def state_dict(self):
        return super().state_dict() | {"place": self.place * 0}


class Disturbed(Walks):
    def state_dict(self):
        self.place += 1.0
        return super().state_dict()


class Whole(Walks):
    """Its shares are all the same."""

    def shard(self, rank, world_size):
        super().shard(0, world_size)


class Greedy(Walks):
    def shard(self, rank, world_size):
        pass


class Copied(Walks):
    def __reduce__(self):
        return (Walks, (4, 6, -1, 9))


class Unclosed(Walks):
    def shutdown(self):
        pass


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (Missized, "frames_per_batch is 7, but 24 were"),
        (Miscounted, "frames is 25, but 24 were"),
        (Reused, "a batch changes when others are collected"),
        (spoiled(without_a_dimension), r"\[4, 6\], not torch.float32 \[4, 6, 1\]"),
        (spoiled(undone), "done is not terminated or truncated"),
        (spoiled(followed_by_the_next_episode), "not the true final one"),
        (spoiled(disordered), "is not the 'observation' that the following"),
        (Unseeded, r"set_seed\(7\) does not give the same batches twice"),
        (Forgetful, "resumes 'exactly', but continues with other batches"),
        (Disturbed, r"state_dict\(\) changes what follows"),
        (Whole, "'observation' of the shares together is not that of the whole"),
        (Greedy, "num_envs is 4 in one of two shares of 4"),
        (Copied, "a pickled copy collects other batches"),
        (Unclosed, r"collect\(\) after shutdown\(\) raises no RuntimeError"),
    ],
)
def test_what_is_broken_is_named(broken, problem):
    with pytest.raises(CollectorError, match=problem):
        check_collector(broken)


# -- what the contract gives ----------------------------------------------------------------------


def trained(collector: Any, frames: int, file: Any, *, resume: bool = False) -> Any:
    torch.manual_seed(0)
    trainer = tiny_trainer(collector=collector, total_frames=frames, save_trainer_file=file)
    if resume:
        trainer.load_from_file(file)
    seen: list[Any] = []
    trainer.register_op("pre_steps_log", lambda batch: seen.append(batch.clone()))
    trainer.train()
    return trainer, seen


@pytest.mark.parametrize("make", [Walks, a_list, a_data_set], ids=["stranger", "list", "data set"])
@pytest.mark.parametrize("overlap", [False, True])
def test_a_run_with_it_is_resumed_exactly_and_timed(make, overlap, tmp_path):
    def collector() -> Any:
        return OverlappedCollector(make(), 1) if overlap else make()

    size = tiny_trainer(collector=make()).source.collect().numel()
    _, batches = trained(collector(), 4 * size, tmp_path / "whole.pt")
    trained(collector(), 2 * size, file := tmp_path / "half.pt")
    resumed, following = trained(collector(), 4 * size, file, resume=True)
    assert len(following) == 2
    for one, other in zip(following, batches[2:], strict=True):
        assert (one == other).all()
    assert resumed.timing.totals["collect"] > 0
    assert ("worker/collect" in resumed.timing.totals) == overlap


# -- adapt ---------------------------------------------------------------------------------------


def test_what_an_object_lacks_is_as_in_the_base():
    collector = adapt(OnlySome())
    assert isinstance(collector, AdaptedCollector)
    assert (collector.frame_skip, collector.total_frames, collector.resumes) == (
        None,
        -1,
        "restarts",
    )
    with pytest.raises(ConfigError, match="AdaptedCollector has no environments"):
        collector.use_workers(2)
    with pytest.raises(ConfigError, match="Walks has no environments"):
        Walks().use_workers(2)
    assert collector.collect().shape == (4, 6)
    assert collector.frames == 24
    batches = (FakeCollector()._batch() for _ in range(2))
    with pytest.raises(ConfigError, match=r"generator has no shard\(rank, world_size\), so 2"):
        adapt(batches).check_shares(2)
    assert len(list(adapt(batches))) == 2


class Padded:
    """Two episodes in each batch, padded to the longer one, as of TorchRL's ``split_trajs``."""

    total_frames = 30

    def collect(self) -> TensorDict:
        mask = torch.arange(8) < torch.tensor([[2], [8]])
        observation = torch.zeros(2, 8, 1)
        return TensorDict({"observation": observation, "collector": {"mask": mask}}, [2, 8])


@pytest.mark.parametrize("ahead", [False, True])
def test_padding_is_not_counted(ahead):
    collector = OverlappedCollector(Padded(), 2, mode="thread") if ahead else adapt(Padded())
    try:
        assert [len(batch) for batch in collector] == [2, 2, 2]
        assert collector.frames == 30
    finally:
        collector.shutdown()
    given = adapt(list(adapt(Padded())))
    given.collect()
    assert given.frames == 10
    given.load_state_dict(given.state_dict())
    assert given.frames == 10
