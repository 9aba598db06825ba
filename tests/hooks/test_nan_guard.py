from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from hooktrainer import NanGuard, NonFiniteError
from hooktrainer.testing import ScriptedLoss, tiny_trainer


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_it_names_key_value_step_and_frames(bad):
    trainer = tiny_trainer(loss_module=ScriptedLoss([1.0, 1.0, 1.0, bad], key="loss_critic"))
    with pytest.raises(NonFiniteError) as caught:
        trainer.train()
    assert str(caught.value).startswith(
        f"loss_critic is {bad} at optimizer step 4, after 20 frames"
    )


def test_diagnostics_may_be_nan():
    losses = TensorDict({"loss": torch.ones(()), "kl": torch.tensor(float("nan"))}, [])
    assert NanGuard()(losses, True, None, 0) is None


def test_a_loss_of_several_elements():
    losses = TensorDict({"loss": torch.tensor([1.0, float("nan")])}, [])
    with pytest.raises(NonFiniteError, match="loss is nan"):
        NanGuard()(losses, True, None, 0)
    large = torch.full((4096,), 60.0, dtype=torch.float16)  # their sum is infinite in this type
    NanGuard()(TensorDict({"loss": large}, []), True, None, 0)


def test_it_can_be_left_out():
    trainer = tiny_trainer(
        nan_guard=False, loss_module=ScriptedLoss([float("inf")]), total_frames=10
    )
    trainer.train()  # the gradient is 1 all the same
    assert "nan_guard" not in trainer.describe()


@pytest.mark.parametrize("key", ["observation", ("next", "reward")])
def test_a_nan_of_the_environment_is_named(key):
    batches = [TensorDict({"observation": torch.zeros(2, 3), "next": {}}, [2, 3]) for _ in range(2)]
    for batch in batches:
        batch["next"] = {"observation": torch.zeros(2, 3), "reward": torch.zeros(2, 3, 1)}
    batches[1][key][1, 2] = float("nan")
    loss = ScriptedLoss([1.0, 1.0, 1.0, float("nan")])
    with pytest.raises(NonFiniteError) as caught:
        tiny_trainer(collector=batches, total_frames=12, loss_module=loss).train()
    name = "observation" if key == "observation" else "('next', 'reward')"
    assert f"{name}" in str(caught.value)
    assert "of environment 1, at step 3 of the batch, is nan" in str(caught.value)
    assert isinstance(caught.value.__cause__, NonFiniteError)


def test_a_nan_that_a_hook_wrote_is_not_the_environments():
    batches = [TensorDict({"next": {"reward": torch.zeros(2, 3, 1)}}, [2, 3])]
    loss = ScriptedLoss([float("nan")])
    trainer = tiny_trainer(collector=batches, total_frames=6, loss_module=loss)
    nan = torch.full((2, 3, 1), float("nan"))
    trainer.register_op("batch_process", lambda batch: batch.copy().set(("next", "reward"), nan))
    with pytest.raises(NonFiniteError, match="is nan: a hook at batch_process wrote it, and so"):
        trainer.train()


def example_trainer():
    return tiny_trainer(nan_guard=False)
