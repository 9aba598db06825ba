"""`KLAdaptiveLR`: the rule by hand, where the rate is kept, and a run that goes on exactly."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from no_waiting import NoWaiting
from resuming import small_ppo
from tensordict import TensorDict

from hooktrainer import KLAdaptiveLR, Trainer
from hooktrainer.testing import ScriptedLoss, tiny_trainer


class Moved(ScriptedLoss):
    """A scripted loss that says how far the policy has moved."""

    def __init__(self, *kl: float) -> None:
        super().__init__()
        self.kl = list(kl)

    def forward(self, batch):
        out = super().forward(batch)
        return out.set("kl", torch.tensor(self.kl[min(self.calls, len(self.kl)) - 1]))


def example_trainer() -> Trainer:
    return tiny_trainer(loss_module=Moved(0.5))


def example(trainer: Trainer) -> KLAdaptiveLR:
    return KLAdaptiveLR(trainer.optimizer)


def rates(kl: list[float], start: float = 1e-3, as_tensor: bool = False, **options) -> list[float]:
    """The rate at each step."""
    optimizer = torch.optim.SGD([torch.zeros(1), torch.zeros(1)], lr=start)
    hook = KLAdaptiveLR(optimizer, **options)
    if as_tensor:
        optimizer.param_groups[0]["lr"] = torch.tensor(start)
    seen = []
    for value in kl:
        losses = TensorDict({"kl": torch.tensor(value)}, [])
        if as_tensor:
            with NoWaiting():
                hook(losses, True, None, 0)
        else:
            hook(losses, True, None, 0)
        seen.append(optimizer.param_groups[0]["lr"])
    return [float(rate) for rate in seen]


@pytest.mark.parametrize("as_tensor", [False, True], ids=["number", "tensor"])
def test_the_rule_by_hand(as_tensor):
    # Above 0.02 the rate is divided by 1.5, below 0.005 multiplied; in between, and at 0, it stays.
    kl = [0.021, 0.0199, 0.01, 0.0051, 0.0049, 0.0, -0.1, float("nan"), 0.004, 0.5]
    less, more = 1e-3 / 1.5, 1e-3 * 1.5
    expected = [less] * 4 + [1e-3] * 4 + [more, 1e-3]
    assert rates(kl, as_tensor=as_tensor) == pytest.approx(expected, rel=1e-6)


def test_the_step_is_taken_with_the_new_rate(logger):
    loss = Moved(1.0, 1.0, 0.01, 0.001)
    trainer = tiny_trainer(loss_module=loss, total_frames=20, logger=logger, log_interval=10)
    KLAdaptiveLR(trainer.optimizer, high=0.06).register(trainer)
    trainer.train()
    # The gradient is 1, the rate 0.1 at the beginning, 0.0667 and 0.0444 after two large steps.
    steps = [0.1 / 1.5, 0.1 / 2.25, 0.1 / 2.25, 0.06]
    assert loss.parameter.item() == pytest.approx(-sum(steps))
    assert logger.column("train/lr") == pytest.approx({10: 0.1 / 2.25, 20: 0.06})
    assert logger.column("train/kl") == pytest.approx({10: 1.0, 20: 0.0055})


# -- in PPO ----------------------------------------------------------------------------------------


ppo = partial(small_ppo, "Pendulum-v1")


@pytest.mark.parametrize("mini_batch_size", [8, 12], ids=["four steps a graph", "odd ones too"])
def test_it_is_a_part_of_compiled_steps(mini_batch_size, capsys):
    ends = []
    for compile in (None, "step"):
        trainer = ppo(desired_kl=0.002, compile=compile, mini_batch_size=mini_batch_size)
        seen = []
        trainer.register_op("post_steps", lambda t=trainer, s=seen: s.append(rate_of(t)))
        trainer.train()
        ends.append((list(trainer.loss_module.parameters()), seen))
    torch.testing.assert_close(ends[1][0], ends[0][0])
    assert ends[0][1] == ends[1][1]
    assert len(set(ends[0][1])) > 2
    assert "compiled:" not in capsys.readouterr().out  # or the line would say what is apart


def rate_of(trainer: Trainer) -> float:
    """The rate, which is a number on a CPU."""
    rate = trainer.optimizer.param_groups[0]["lr"]
    assert type(rate) is float
    return rate
