"""Hooks written for torchrl.trainers work unchanged when they use the ten points."""

from __future__ import annotations

import torch
import torchrl.trainers
from tensordict import TensorDict

from hooktrainer.testing import FakeCollector, tiny_trainer


class Third(torchrl.trainers.TrainerHookBase):
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


def test_select_keys():
    seen, trainer = [], tiny_trainer(total_frames=10)
    torchrl.trainers.SelectKeys(["action"]).register(trainer)
    trainer.register_op("pre_steps_log", lambda td: seen.append(set(td.keys())))
    trainer.train()
    assert seen == [{"action"}]


def test_batch_sub_sampler():
    shapes, trainer = [], tiny_trainer(total_frames=10)
    torchrl.trainers.BatchSubSampler(4, sub_traj_len=2).register(trainer)
    trainer.register_op("post_optim_log", lambda td: shapes.append(tuple(td.shape)))
    trainer.train()
    assert shapes == [(2, 2), (2, 2)]


def test_mask_batch():
    batch = TensorDict(
        {"x": torch.arange(4), "collector": {"mask": torch.tensor([1, 0, 1, 1]).bool()}}, [4]
    )
    seen, trainer = [], tiny_trainer(collector=[batch])
    trainer.register_op("batch_process", torchrl.trainers.mask_batch)
    trainer.register_op("post_steps_log", lambda td: seen.append(td["x"].tolist()))
    trainer.train()
    assert seen == [[0, 2, 3]]


def test_log_scalar_count_frames_and_clear_cuda_cache(logger):
    trainer = tiny_trainer(logger=logger, total_frames=10)
    torchrl.trainers.LogScalar(("next", "reward"), "r").register(trainer)
    torchrl.trainers.CountFramesLog(frame_skip=1).register(trainer)
    torchrl.trainers.ClearCudaCache(1).register(trainer)
    trainer.train()
    assert {"r", "r_std", "n_frames"} <= logger.rows[0][1].keys()


def test_update_weights():
    class Receiving(FakeCollector):
        received = 0

        def update_policy_weights_(self, *args, **kwargs):
            self.received += 1

    collector = Receiving()
    trainer = tiny_trainer(collector=collector)
    torchrl.trainers.UpdateWeights(collector, 1).register(trainer)
    trainer.train()
    assert collector.received == 5
