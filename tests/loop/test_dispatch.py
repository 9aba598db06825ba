from __future__ import annotations

import pytest
import torch

from hooktrainer import Every
from hooktrainer.errors import HookReturnError
from hooktrainer.testing import tiny_trainer

# -- transforms ----------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["batch_process", "process_optim_batch", "post_loss"])
@pytest.mark.parametrize("value", [{"x": 1}, 3, "td", (), False], ids=repr)
def test_a_transform_that_returns_no_tensordict_is_refused(point, value):
    trainer = tiny_trainer()

    def bad_hook(batch):
        return value

    trainer.register_op(point, bad_hook)
    with pytest.raises(HookReturnError) as caught:
        trainer.train()
    message = str(caught.value)
    assert "'bad_hook'" in message
    assert f"hook point {point} returned" in message
    assert type(value).__name__ in message
    assert "TensorDict" in message


@pytest.mark.parametrize("every", [None, Every(batches=2)])
def test_a_process_optim_batch_hook_that_returns_none_keeps_the_sub_batch(every):
    looked, seen = [], []
    trainer = tiny_trainer(total_frames=20)
    trainer.register_op("process_optim_batch", lambda batch: batch.reshape(-1)[:3])
    trainer.register_op("process_optim_batch", lambda batch: looked.append(1), every=every)
    trainer.register_op("post_optim_log", lambda batch: seen.append(len(batch)))
    trainer.train()
    assert seen == [3, 3, 3, 3]
    assert looked


# -- logs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [3, "x", [1], torch.zeros(())], ids=repr)
def test_a_log_hook_that_returns_no_dict_is_refused(value):
    trainer = tiny_trainer()
    trainer.register_op("post_steps_log", lambda batch: value)
    with pytest.raises(HookReturnError, match=r"post_steps_log returned .* dict of metrics"):
        trainer.train()


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "step"),
    [
        ("batch_process", 2),
        ("pre_steps_log", 2),
        ("pre_optim_steps", 2),
        ("process_optim_batch", 2),
        ("post_loss", 3),
        ("optimizer", 3),
        ("post_optim", 3),
        ("post_optim_log", 3),
        ("post_steps", 4),
        ("post_steps_log", 4),
    ],
)
def test_an_error_carries_hook_point_frames_and_step(point, step):
    trainer = tiny_trainer()

    def broken(*args):
        if trainer.collected_frames == 20:
            raise ValueError

    trainer.register_op(point, broken)
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        trainer.train()
    assert caught.value.__notes__ == [
        f"in hook 'broken' at hook point {point} (frames 20, optimizer step {step})"
    ]
