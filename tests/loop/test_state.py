from __future__ import annotations

import copy
import pickle
import random
import warnings

import numpy as np
import pytest
import torch
from outcomes import same
from tensordict import TensorDict

from hooktrainer import (
    BatchSubSampler,
    ClearCudaCache,
    CountFramesLog,
    EarlyStopping,
    Every,
    LogScalar,
    LRSchedulerHook,
    MiniBatches,
    RewardNormalizer,
    StateMismatchError,
    Trainer,
    TrainerHookBase,
)
from hooktrainer.store import CheckpointManager
from hooktrainer.testing import FakeCollector, tiny_trainer


class Regression(torch.nn.Module):
    """A small network with dropout, so that a step depends on the random state."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1)
        )

    def forward(self, td):
        error = self.net(td["observation"]) - td["next", "reward"]
        return TensorDict({"loss_mse": error.square().mean(), "error": error.mean()}, [])


class Noise(TrainerHookBase):
    """Adds numbers of all three generators, and counts."""

    def __init__(self) -> None:
        self.total = 0.0

    def register(self, trainer, name="noise"):
        trainer.register_module(name, self)
        trainer.register_op("post_optim_log", self, every=Every(optim_steps=3))

    def __call__(self, batch):
        self.total += random.random() + np.random.rand()
        return {"noise": self.total}

    def state_dict(self):
        return {"total": self.total}

    def load_state_dict(self, state_dict):
        self.total = state_dict["total"]


def toy(logger=None, **arguments) -> Trainer:
    torch.manual_seed(0)
    loss = Regression()
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-2)
    trainer = tiny_trainer(
        loss_module=loss,
        optimizer=optimizer,
        logger=logger,
        log_interval=40,
        num_epochs=2,
        clip_norm=1.0,
        seed=3,
        **{"total_frames": 200, "optim_steps_per_batch": None} | arguments,
    )
    for hook in (
        MiniBatches(4),
        RewardNormalizer(decay=0.9),
        Noise(),
        CountFramesLog(1),
        LogScalar(logname="reward"),
        EarlyStopping(monitor="reward", wait_for=0, patience=10**6),
        LRSchedulerHook(torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)),
        ClearCudaCache(3),
    ):
        hook.register(trainer)
    return trainer


def parameters(trainer: Trainer) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.loss_module.parameters()])


def without_clock(state: dict) -> dict:
    components = dict(state["components"])
    components["progress"] = components["progress"] | {"seconds": 0.0}
    components["metrics"] = {
        kind: {k: v for k, v in values.items() if not k.startswith("time/")}
        for kind, values in components["metrics"].items()
        if kind != "pbar_names"
    }
    reported = {k: v for k, v in state["reported"].items() if not k.startswith("time/")}
    return state | {"components": components, "reported": reported}


def train_until(trainer: Trainer, frames: int) -> None:
    """Train, and kill the run after the batch of those frames."""

    def kill():
        if trainer.collected_frames == frames:
            raise KeyboardInterrupt

    trainer.register_op("post_steps", kill)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()


# -- a resumed run is the run that was never interrupted -----------------------------------------


@pytest.mark.parametrize(
    ("frames", "backend"),
    [(10, "torch"), (40, "native"), (50, "torch"), (110, "torchsnapshot"), (190, "torch")],
)
def test_a_killed_run_resumes_bit_for_bit(frames, backend, tmp_path, make_logger, monkeypatch):
    monkeypatch.setenv("CKPT_BACKEND", backend)
    whole_log, first_log, second_log = make_logger(), make_logger(), make_logger()
    file = tmp_path / "state.pt"

    whole = toy(whole_log)
    whole.train()

    train_until(toy(first_log, save_trainer_file=file, save_trainer_interval=10), frames + 10)
    assert (tmp_path / "state.pt.tensors").exists() == (backend != "torch")
    monkeypatch.delenv("CKPT_BACKEND")
    torch.manual_seed(99)  # another process would be anywhere
    random.seed(99)
    np.random.seed(99)
    resumed = toy(second_log).load_from_file(file)
    assert resumed.collected_frames == frames
    resumed.train()

    assert parameters(resumed).equal(parameters(whole))
    assert same(without_clock(resumed.state_dict()), without_clock(whole.state_dict()))
    rows = [r for r in first_log.reproducible() if r[0] <= frames] + second_log.reproducible()
    assert rows == whole_log.reproducible()


# -- the state -----------------------------------------------------------------------------------


@pytest.mark.parametrize("saves", [True, False])
def test_a_collector_that_is_not_restored_is_named_at_the_start(saves, tmp_path):
    class Batches:
        """Has no state_dict."""

        def __iter__(self):
            return iter(FakeCollector(num_batches=5))

    batches = Batches()
    file = tmp_path / "state.pt" if saves else None
    trainer = tiny_trainer(collector=batches, save_trainer_file=file)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.train()
    messages = [str(warning.message) for warning in caught]
    assert [("Batches, has no state_dict" in message) for message in messages] == [True] * saves


class Pickling(TrainerHookBase):
    """Keeps a copy of its trainer, as one that is sent to another process."""

    at = "post_steps"

    def __call__(self):
        self.trainer.finite.see("loss", [torch.ones(())], lambda values, where: ValueError(where))
        self.copy = None
        self.copy = pickle.loads(pickle.dumps(self.trainer))


def test_a_trainer_pickles_while_it_trains(tmp_path):
    hook = Pickling()
    trainer = tiny_trainer(checkpoints=CheckpointManager(tmp_path / "c"), progress_bar=True)
    hook.register(trainer)
    trainer.train()
    assert hook.copy.collected_frames == 50
    assert hook.copy.state_dict()["components"].keys() == trainer.state_dict()["components"].keys()


# -- what does not fit ---------------------------------------------------------------------------


def test_missing_and_extra_hooks_are_all_listed_and_nothing_is_changed():
    saved = tiny_trainer()
    Noise().register(saved, "only_saved")
    CountFramesLog(1).register(saved, "count")
    saved.train()
    live = tiny_trainer()
    Noise().register(live, "only_live")
    BatchSubSampler(2).register(live, "sampler")
    with pytest.raises(StateMismatchError) as caught:
        live.load_state_dict(saved.state_dict())
    message = str(caught.value)
    for name in ("only_saved", "count"):
        assert f"hook/{name} is in the state but not in this trainer" in message
    assert "takes hooks to restore as hooks=[...]" in message
    for name in ("only_live", "sampler"):
        assert f"hook/{name} is in this trainer but not in the state" in message
    assert live.collected_frames == 0
    assert live.loss_module.parameter.item() == 0.0


def test_a_cadence_over_another_unit_is_refused_or_reset():
    saved = tiny_trainer(save_trainer_interval=Every(frames=20))
    saved.train()
    live = tiny_trainer(save_trainer_interval=Every(seconds=60))
    with pytest.raises(StateMismatchError, match="cadence/save: counts seconds here and frames in"):
        live.load_state_dict(saved.state_dict())
    assert live.collected_frames == 0
    with pytest.warns(UserWarning, match="cadence/save: counts seconds here"):
        live.load_state_dict(saved.state_dict(), strict=False)
    assert live.collected_frames == 50
    assert live.cadences["save"].state_dict() == Every(seconds=60).state_dict()


def other(width=8, **arguments) -> Trainer:
    """A trainer like `toy`, but for the width of its network."""
    torch.manual_seed(1)
    loss = Regression()
    loss.net[0], loss.net[2] = torch.nn.Linear(4, width), torch.nn.Linear(width, 1)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-2)
    return tiny_trainer(loss_module=loss, optimizer=optimizer, **arguments)


def test_hooks_shapes_and_versions_are_listed_in_one_error_and_nothing_is_changed():
    saved = other()
    saved.train()
    state = saved.state_dict()
    state["versions"] = state["versions"] | {"torch": "1.13.0", "gone": "1"}
    live = other(16)
    Noise().register(live)
    before = parameters(live)
    with pytest.raises(StateMismatchError) as caught:
        live.load_state_dict(state)
    message = str(caught.value)
    assert "hook/noise is in this trainer but not in the state" in message
    assert "loss_module: net.0.weight is [16, 4] here and [8, 4] in the state" in message
    assert f"torch is {torch.__version__} here and 1.13.0 in the state" in message
    assert "gone" not in message
    assert "pass strict=False to leave these out" in message
    assert live.collected_frames == 0
    assert parameters(live).equal(before)


def test_without_strict_matching_parameters_are_loaded_and_the_optimizer_is_reset():
    saved = other()
    saved.train()
    live = other(16, total_frames=100)
    first = live.loss_module.net[0].weight.detach().clone()
    with pytest.warns(UserWarning, match=r"net\.0\.weight is \[16, 4\] here"):
        live.load_state_dict(saved.state_dict(), strict=False)
    assert live.collected_frames == 50
    assert live.loss_module.net[0].weight.equal(first)
    assert live.loss_module.net[2].bias.equal(saved.loss_module.net[2].bias)
    assert live.optimizer.state_dict()["state"] == {}
    live.train()
    assert live.collected_frames == 100


def test_a_run_with_enough_frames_that_had_not_ended_is_finished(tmp_path):
    file = tmp_path / "state.pt"
    killed = tiny_trainer(total_frames=100, save_trainer_file=file, save_trainer_interval=10)
    Noise().register(killed)
    train_until(killed, 60)
    for times in (1, 0):  # it has ended then
        shorter = tiny_trainer(total_frames=30, save_trainer_file=file)
        hook, ended = Noise(), []
        hook.on_train_end = ended.append
        hook.register(shorter)
        shorter.load_from_file(file)
        assert shorter.has_ended == (not times)
        shorter.train()
        assert (shorter.collected_frames, len(ended)) == (50, times)


@pytest.mark.parametrize("state", [{}, [], {"format": 2}, {"loss_module": {}}], ids=repr)
def test_a_value_that_is_no_trainer_state_is_refused(state):
    with pytest.raises(StateMismatchError, match=r"not the state of a hooktrainer\.Trainer"):
        tiny_trainer().load_state_dict(state)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda saved: saved.update(components=[1]),
        lambda saved: saved.update(versions=3),
        lambda saved: saved["rng"].update(torch=torch.zeros(3)),
        lambda saved: saved["rng"].update(python=(3, (1, 2), None)),
        lambda saved: saved["rng"]["numpy"]["state"].update(pos=10_000),
        lambda saved: saved["rng"].pop("numpy"),
    ],
    ids=["components", "versions", "torch", "python", "numpy", "missing"],
)
def test_a_state_that_is_malformed_changes_nothing(spoil):
    trainer = tiny_trainer()
    saved = trainer.state_dict()
    spoil(saved)
    drawn = torch.random.get_rng_state()
    before = copy.deepcopy(dict(trainer.loss_module.state_dict()))
    with pytest.raises(StateMismatchError, match="the state is malformed"):
        trainer.load_state_dict(saved)
    assert torch.equal(torch.random.get_rng_state(), drawn)
    torch.testing.assert_close(dict(trainer.loss_module.state_dict()), before)
