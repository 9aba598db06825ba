"""`Curriculum`: when the level rises, who is told, and runs that go on exactly."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from hooktrainer import ConfigError, Curriculum, Trainer, VectorCollector
from hooktrainer.testing import tiny_trainer


def example_trainer() -> Trainer:
    return tiny_trainer(collector=VectorCollector("Pendulum-v1", num_envs=2, frames_per_batch=10))


def example(trainer) -> Curriculum:
    return Curriculum("g", [9.0, 10.0, 11.0], frames=[10, 30])


class Source:
    """Stands for a collector that was restored or not."""

    def __init__(self):
        self.told = []

    def set_attribute(self, name, value):
        self.told.append((name, value))


def values_over_run(hook, trainer: Trainer) -> list[float]:
    """The value of g during each batch."""
    seen = []
    hook.register(trainer)
    group = trainer.source.envs
    trainer.register_op("batch_process", lambda b: seen.append(group._envs[0].unwrapped.g))
    trainer.train()
    return seen


def test_it_rises_by_frames(logger):
    trainer = tiny_trainer(
        collector=VectorCollector("Pendulum-v1", num_envs=2, frames_per_batch=10),
        logger=logger,
        log_interval=10,
    )
    seen = values_over_run(Curriculum("g", [9.0, 10.0, 11.0], frames=[10, 30]), trainer)
    assert seen == [9.0, 10.0, 10.0, 11.0, 11.0]
    assert logger.column("curriculum/g") == {10: 0, 20: 1, 30: 1, 40: 2, 50: 2}


@pytest.mark.parametrize(
    ("values", "seen"), [([9.0, 10.0], [10.0] * 3), ([9.0, 5.0], [5.0] * 3), ([7.0], [7.0] * 3)]
)
def test_a_resumed_run_has_the_value_that_it_is_given(values, seen):
    def run(values, frames):
        collector = VectorCollector("Pendulum-v1", num_envs=2, frames_per_batch=10)
        trainer = tiny_trainer(collector=collector, total_frames=frames)
        return Curriculum("g", values, frames=[10][: len(values) - 1]), trainer

    hook, before = run([9.0, 10.0], 20)
    assert values_over_run(hook, before) == [9.0, 10.0]
    hook, trainer = run(values, 50)
    hook.register(trainer)
    trainer.load_state_dict(before.state_dict())
    trainer.remove_hook("curriculum")
    assert values_over_run(hook, trainer) == seen


def ended(*returns: float) -> TensorDict:
    values = torch.tensor(returns).view(1, -1, 1)
    following = {"episode_reward": values, "done": torch.ones_like(values, dtype=torch.bool)}
    return TensorDict({"next": following}, values.shape[:2])


def test_it_rises_by_the_mean_of_the_last_episodes_of_the_level():
    hook = Curriculum("g", [1, 2, 3], above=[10.0, 20.0], episodes=3)
    source = Source()
    hook.trainer = type("T", (), {"source": source, "collected_frames": 0})()
    hook.on_train_start(hook.trainer)
    levels = []
    for returns in ([50.0, 50.0], [0.0], [5.0, 10.0, 15.0], [60.0, 60.0], [60.0], [0.0], [99.0]):
        hook.observe(ended(*returns))
        hook()
        levels.append(hook.level)
    # Two episodes are no three, the third makes the mean 33. Of the next level three have the mean
    # 10, and the last three 45.
    assert levels == [0, 1, 1, 2, 2, 2, 2]
    assert source.told == [("g", 1), ("g", 2), ("g", 3)]


def test_an_attribute_that_cannot_be_set_is_named():
    trainer = tiny_trainer()
    Curriculum("g", [1, 2], frames=[10]).register(trainer)
    with pytest.raises(ConfigError, match="sets no attributes of its env"):
        trainer.train()
    for make, env in ((VectorCollector, "Pendulum-v1"), (VectorCollector, "torch/Pendulum-v1")):
        collector = make(env, num_envs=2, frames_per_batch=4)
        with pytest.raises(ConfigError, match="has no attribute 'gravity' to be set"):
            collector.set_attribute("gravity", 3.0)
        collector.shutdown()


def test_an_entry_that_batches_lack_is_named():
    trainer = example_trainer()
    Curriculum("g", [9.0, 10.0], above=[1.0], key=("next", "success")).register(trainer)
    with pytest.raises(KeyError, match=r"needs .*success.*an entry of info_keys"):
        trainer.train()


class Gravity(float):
    __repr__ = object.__repr__  # with an address


def test_a_resumed_run_sets_nothing_again_that_is_the_same(monkeypatch):
    def run():
        collector = VectorCollector("Pendulum-v1", num_envs=2, frames_per_batch=10)
        trainer = tiny_trainer(collector=collector, total_frames=20)
        Curriculum("g", [Gravity(9), Gravity(5)], frames=[10]).register(trainer)
        return trainer

    before, trainer = run(), run()
    calls = []
    before.train()
    trainer.load_state_dict(before.state_dict())
    monkeypatch.setattr(trainer.source, "set_attribute", lambda *given: calls.append(given))
    trainer.registry.modules["curriculum"].on_train_start(trainer)
    assert calls == []
    before.shutdown()
    trainer.shutdown()


def test_an_entry_of_each_agent_is_refused():
    hook = Curriculum("g", [1, 2], above=[1.0], key=("next", "agents", "episode_reward"))
    batch = ended(1.0, 2.0)
    batch["next", "agents"] = {"episode_reward": torch.zeros(1, 2, 3, 1)}
    problem = r"is \[1, 2, 3, 1\], not a number for each step, \[1, 2, 1\]: name an entry of the"
    with pytest.raises(ConfigError, match=problem):
        hook.observe(batch)


# -- collectors ------------------------------------------------------------------------------------

KINDS = {
    "scalar": lambda: VectorCollector("Pendulum-v1", num_envs=2, frames_per_batch=40),
    "slots": lambda: VectorCollector("CartPole-v1", num_envs=6, frames_per_batch=120),
    "workers": lambda: VectorCollector("Pendulum-v1", num_envs=2, frames_per_batch=40, workers=2),
    "world": lambda: VectorCollector("torch/Pendulum-v1", num_envs=2, frames_per_batch=40),
}
NAMES = {"scalar": "g", "slots": "gravity", "workers": "g", "world": "g"}


@pytest.mark.parametrize("kind", KINDS)
def test_an_attribute_is_kept_after_a_resume(kind):
    collector, plain = KINDS[kind](), KINDS[kind]()
    collector.collect()
    collector.set_attribute(NAMES[kind], 30.0)
    saved_at_once = collector.state_dict()
    first = collector.collect()
    state = collector.state_dict()
    second = collector.collect()
    plain.collect()
    plain.reset()
    assert not torch.equal(plain.collect()["next", "observation"], first["next", "observation"])
    for saved, expected in ((saved_at_once, [first, second]), (state, [second])):
        other = KINDS[kind]()
        other.load_state_dict(saved)
        for batch in expected:
            got = other.collect()
            for key in ("observation", ("next", "observation"), ("next", "reward")):
                assert torch.equal(got[key], batch[key]), key
        other.shutdown()
    collector.shutdown()
    plain.shutdown()
