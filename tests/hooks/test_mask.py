from __future__ import annotations

import torch
from tensordict import TensorDict

from hooktrainer import mask_batch
from hooktrainer.testing import tiny_trainer


def test_valid_steps_are_kept():
    mask = torch.tensor([[True, True, False], [True, False, False]])
    batch = TensorDict({"x": torch.arange(6).reshape(2, 3), "collector": {"mask": mask}}, [2, 3])
    out = mask_batch(batch)
    assert out.shape == (3,)
    assert out["x"].tolist() == [0, 1, 3]


def test_without_a_mask_nothing_happens():
    batch = TensorDict({"x": torch.arange(3)}, [3])
    assert mask_batch(batch) is batch


def test_in_a_run():
    shapes, trainer = [], tiny_trainer(total_frames=10)

    def add_mask(batch):
        mask = torch.arange(5).expand(2, 5) < 3
        return batch.set(("collector", "mask"), mask)

    trainer.register_op("batch_process", add_mask)
    trainer.register_op("batch_process", mask_batch)
    trainer.register_op("post_steps_log", lambda td: shapes.append(tuple(td.shape)))
    trainer.train()
    assert shapes == [(6,)]
