"""Every hook of ``torchrl.trainers`` is registered unchanged, runs, is saved, and resumes."""

from __future__ import annotations

import warnings

import pytest
import torch
import torchrl.trainers as theirs
from saved_there import same
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.data import Bounded, LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import GymEnv, StepCounter, TransformedEnv
from torchrl.modules import Delta, ProbabilisticActor, QValueActor, ValueOperator
from torchrl.objectives import DQNLoss, HardUpdate, REDQLoss
from torchrl.trainers.trainers import LogTiming

from hooktrainer import Trainer
from hooktrainer.testing import FakeCollector, ScriptedLoss, tiny_trainer


class Stateless(theirs.TrainerHookBase):
    """As TorchRL's base class leaves it: no state_dict, no load_state_dict."""

    def register(self, trainer, name="stateless"):
        trainer.register_module(name, self)
        trainer.register_op("post_steps", self)

    def __call__(self):
        pass


class Receiving(FakeCollector):
    """Writes down when it was sent weights."""

    def __init__(self):
        super().__init__()
        self.received = []

    def update_policy_weights_(self, *args, **kwargs):
        self.received.append(self.yielded)

    def state_dict(self):
        return super().state_dict() | {"received": list(self.received)}

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        self.received = list(state_dict["received"])


def dqn(seed=0):
    torch.manual_seed(seed)
    net = nn.Linear(4, 2)
    actor = QValueActor(net, in_keys=["observation"], action_space="categorical")
    return DQNLoss(actor, action_space="categorical", delay_value=True)


def plain(total_frames, **overrides) -> Trainer:
    return tiny_trainer(total_frames=total_frames, **overrides)


def adds(*hooks):
    """A maker of trainers with these hooks."""

    def make(total_frames):
        trainer = plain(total_frames)
        for hook in hooks:
            hook().register(trainer)
        return trainer

    return make


def with_buffer(total_frames):
    trainer = plain(total_frames)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(30), batch_size=4)
    theirs.ReplayBufferTrainer(buffer, flatten_tensordicts=True).register(trainer)
    theirs.UTDRHook(trainer).register(trainer)
    return trainer


def with_scheduler(interval):
    def make(total_frames):
        loss = ScriptedLoss()
        optimizer = torch.optim.SGD(loss.parameters(), lr=1.0)
        trainer = plain(total_frames, loss_module=loss, optimizer=optimizer)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
        theirs.LRSchedulerHook(scheduler, interval).register(trainer)
        return trainer

    return make


def with_target(total_frames):
    loss = dqn()
    trainer = plain(
        total_frames, loss_module=loss, optimizer=torch.optim.SGD(loss.parameters(), lr=0.1)
    )
    updater = HardUpdate(loss, value_network_update_interval=2)
    theirs.TargetNetUpdaterHook(updater).register(trainer, "target")
    return trainer


def with_weights(unit):
    def make(total_frames):
        collector = Receiving()
        trainer = plain(total_frames, collector=collector)
        theirs.UpdateWeights(collector, 3, trainer=trainer, interval_unit=unit).register(trainer)
        return trainer

    return make


def with_estimator(total_frames):
    class Estimate(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(4)  # its state counts its calls

        def forward(self, batch):
            values = self.norm(batch["observation"].flatten(0, 1)).detach()
            return batch.set("advantage", values.unflatten(0, batch.shape))

    trainer = plain(total_frames, num_epochs=2)
    theirs.ValueEstimatorHook(Estimate()).register(trainer)
    return trainer


def with_optimizer(total_frames):
    loss = ScriptedLoss()
    trainer = plain(total_frames, loss_module=loss, optimizer=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torchrl deprecates its own
        hook = theirs.OptimizerHook(torch.optim.Adam(loss.parameters(), lr=0.1), ["loss"])
    hook.register(trainer)
    return trainer


def with_validation(total_frames):
    torch.manual_seed(0)
    actor = QValueActor(nn.Linear(4, 2), in_keys=["observation"], action_space="categorical")
    env = TransformedEnv(GymEnv("CartPole-v1", categorical_action_encoding=True), StepCounter())
    env.set_seed(0)
    trainer = plain(total_frames)
    theirs.LogValidationReward(
        record_interval=3, record_frames=5, policy_exploration=actor, environment=env
    ).register(trainer)
    return trainer


def with_early_stopping(total_frames):
    trainer = plain(total_frames)
    theirs.LogScalar(("next", "reward"), "r").register(trainer)
    theirs.EarlyStopping(monitor="r", patience=10**6, wait_for=0).register(trainer)
    return trainer


CASES = {
    "base class without state": adds(Stateless),
    "BatchSubSampler": adds(lambda: theirs.BatchSubSampler(4, sub_traj_len=2)),
    "ClearCudaCache": adds(lambda: theirs.ClearCudaCache(2)),
    "CountFramesLog": adds(lambda: theirs.CountFramesLog(frame_skip=1)),
    "EarlyStopping": with_early_stopping,
    "LogScalar": adds(lambda: theirs.LogScalar(("next", "reward"), "r")),
    "LogTiming": adds(LogTiming),
    "LogValidationReward": with_validation,
    "LRSchedulerHook, optim": with_scheduler("optim"),
    "LRSchedulerHook, batch": with_scheduler("batch"),
    "OptimizerHook": with_optimizer,
    "ReplayBufferTrainer, UTDRHook": with_buffer,
    "RewardNormalizer": adds(theirs.RewardNormalizer),
    "SelectKeys": adds(lambda: theirs.SelectKeys(["observation", "next"])),
    "TargetNetUpdaterHook": with_target,
    "UpdateWeights, batches": with_weights("batches"),
    "UpdateWeights, optim_steps": with_weights("optim_steps"),
    "ValueEstimatorHook": with_estimator,
}


def train(trainer):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="torchrl")
        trainer.train()
    return trainer


@pytest.mark.parametrize("name", CASES)
def test_a_resumed_run_is_the_run_that_was_never_interrupted(name, tmp_path):
    torch.manual_seed(1)
    whole = train(CASES[name](80))
    torch.manual_seed(1)
    first = CASES[name](50)
    first.save_trainer_file = tmp_path / "state.pt"
    train(first)
    second = CASES[name](80)
    second.load_from_file(tmp_path / "state.pt")
    train(second)
    assert second.optim_count == whole.optim_count > 0
    expected, state = whole.state_dict(), second.state_dict()
    # The clock, and the logs' own first window, are not the run's.
    for components in (expected["components"], state["components"]):
        components["progress"].pop("seconds")
        components.pop("metrics")
        components.pop("cadence/save")
    assert same(expected["components"], state["components"])


def test_all_of_torchrls_hooks_are_in_the_list():
    hooks = {
        name
        for name, thing in {**vars(theirs), "LogTiming": LogTiming}.items()
        if isinstance(thing, type)
        and issubclass(thing, theirs.TrainerHookBase)
        and not issubclass(thing, theirs.OptimizationStepper)
    } - {"TrainerHookBase"}
    assert {name for name in hooks if not any(name in case for case in CASES)} == set()


def redq():
    actor = ProbabilisticActor(
        TensorDictModule(nn.Linear(3, 2), ["observation"], ["param"]),
        in_keys=["param"],
        distribution_class=Delta,
        spec=Bounded(-1, 1, (2,)),
    )
    return REDQLoss(actor, ValueOperator(nn.Linear(5, 1), in_keys=["observation", "action"]))


@pytest.mark.parametrize(("make", "lazy"), [(redq, "target_entropy"), (dqn, "value_estimator")])
@pytest.mark.filterwarnings("ignore:No target network updater", "ignore:No value estimator")
def test_what_a_loss_builds_at_its_first_call_is_restored(make, lazy):
    trainer, other = tiny_trainer(loss_module=make()), tiny_trainer(loss_module=make())
    before = set(trainer.state_dict()["components"]["loss_module"])
    getattr(trainer.loss_module, lazy)
    state = trainer.state_dict()
    assert set(state["components"]["loss_module"]) > before
    other.load_state_dict(state)
    assert same(dict(other.loss_module.state_dict()), dict(trainer.loss_module.state_dict()))


@pytest.mark.parametrize("name", ["loss", "loss/loss", "optim_steps"])
def test_early_stopping_finds_what_torchrls_trainer_logs_itself(name):
    trainer = tiny_trainer()
    theirs.EarlyStopping(monitor=name, patience=0, wait_for=20).register(trainer)
    trainer.register_op("post_steps_log", lambda td: trainer.request_log(), priority=9)
    trainer.train()
    assert (trainer.stop_reason is None) == (name == "optim_steps")  # which alone increases


def test_register_hook_and_log_have_torchrls_names(logger):
    trainer = tiny_trainer(logger=logger, total_frames=10)
    trainer.register_hook("post_steps", lambda: trainer._log(value=3.0, log_pbar=True))
    trainer.train()
    assert logger.column("value") == {10: 3.0}
    assert trainer._log_dict["value"][-1] == 3.0
    assert "other" not in trainer._log_dict
    assert trainer._modules is trainer.registry.modules


class Third(theirs.TrainerHookBase):
    """A hook as torchrl's documentation writes one."""

    def __init__(self) -> None:
        self.n = 0
        self.seen = []

    def register(self, trainer, name="third"):
        trainer.register_module(name, self)
        trainer.register_op("post_optim_log", self)

    def state_dict(self):
        return {"n": self.n}

    def load_state_dict(self, state_dict):
        self.n = state_dict["n"]

    def __call__(self, batch):
        self.n += 1
        if self.n % 3 == 0:
            self.seen.append(self.n)
            return {"third": float(self.n), "log_pbar": False}
        return None


def test_a_subclass_of_torchrls_base_class(logger):
    trainer, hook = tiny_trainer(logger=logger), Third()
    hook.register(trainer)
    trainer.train()
    assert hook.seen == [3, 6, 9]
    assert logger.column("third") == {50: 6.0}
    assert trainer.state_dict()["components"]["hook/third"] == {"n": 10}
