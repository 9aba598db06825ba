"""`AdversarialImitation`: the discriminator's loss and rewards by hand; runs with it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torchrl.objectives as torchrl
from resuming import small_ppo, whole_and_resumed
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn

from hooktrainer import AdversarialImitation, ConfigError, Trainer
from hooktrainer.networks import mlp


def steps(*shape: int, actions: int | None = None) -> TensorDict:
    action = torch.rand(*shape, 1) if actions is None else torch.randint(actions, shape)
    content = {"observation": torch.randn(*shape, 3), "action": action}
    content["next"] = TensorDict({"reward": torch.randn(*shape, 1)}, shape)
    return TensorDict(content, shape)


def example_trainer() -> Trainer:
    return small_ppo("Pendulum-v1")


def example(trainer: Trainer) -> AdversarialImitation:
    torch.manual_seed(0)
    return AdversarialImitation(steps(30), batch_size=8, steps=2)


class Pair(nn.Module):
    """TorchRL's form of a discriminator: probabilities of two entries."""

    def __init__(self, discriminator: nn.Module) -> None:
        super().__init__()
        self.discriminator = discriminator

    def forward(self, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return self.discriminator(torch.cat([observation, action], -1)).sigmoid()


def test_the_loss_equals_torchrls():
    hook = example(example_trainer())
    expert, seen = steps(16), steps(16)
    keys = ["observation", "action"]
    module = TensorDictModule(Pair(hook.discriminator), keys, ["d_logits"])
    theirs = torchrl.GAILLoss(module)
    batch = TensorDict(
        observation=expert["observation"],
        action=expert["action"],
        collector_observation=seen["observation"],
        collector_action=seen["action"],
        batch_size=[16],
    )
    ours, _ = hook.loss(hook._joined(expert), hook._joined(seen))
    torch.testing.assert_close(ours, theirs(batch)["loss"])


@pytest.mark.parametrize("actions", [None, 3])
def test_rewards_by_hand(actions):
    """They are of the discriminator before it trains on the batch; padding is not learned from."""
    hook = AdversarialImitation(steps(30, actions=actions), actions=actions, environment=0.5)
    batch = steps(2, 5, actions=actions)
    action = batch["action"] if actions is None else nn.functional.one_hot(batch["action"], 3)
    with torch.no_grad():
        logits = hook.discriminator(torch.cat([batch["observation"], action.float()], -1))
    before = batch["next", "reward"].clone()
    out = hook(batch)
    expected = -(1 - logits.sigmoid()).log() + 0.5 * before
    torch.testing.assert_close(out["next", "reward"], expected)
    assert torch.equal(batch["next", "reward"], before)
    logged = hook.log(out)
    torch.testing.assert_close(logged["gail/reward"], (expected - 0.5 * before).mean())
    padded = steps(2, 5, actions=actions)
    padded["observation"][:, 3:] = torch.nan
    mask = torch.tensor([[1, 1, 1, 0, 0]] * 2).bool()
    padded["collector"] = TensorDict(mask=mask, batch_size=[2, 5])
    hook(padded)
    assert all(value.isfinite() for value in hook.log(padded).values())


def test_it_learns_to_tell_them_apart_within_the_penalty():
    torch.manual_seed(0)
    expert = steps(200)
    expert["observation"] += 3
    results = {}
    for penalty in (0.0, 10.0):
        hook = AdversarialImitation(expert, lr=1e-2, penalty=penalty)
        for _ in range(10):
            hook(steps(4, 50))
        results[penalty] = hook.log(expert)
        middle = torch.full((1, 4), 1.5, requires_grad=True)
        (slope,) = torch.autograd.grad(hook.discriminator(middle).sum(), middle)
        results[penalty]["slope"] = slope.norm()
    assert results[10.0]["gail/accuracy"] > 0.95
    assert results[10.0]["slope"] == pytest.approx(1.0, abs=0.4)
    assert results[0.0]["slope"] > 2


def test_a_resumed_run_is_the_whole_one():
    def make() -> Trainer:
        trainer = small_ppo("Pendulum-v1", hooks=[example(example_trainer())])
        torch.manual_seed(2)
        return trainer

    whole, resumed = whole_and_resumed(make)
    hooks: list[Any] = [t.registry.modules["adversarial_imitation"] for t in (whole, resumed)]
    pairs = [(whole.loss_module, resumed.loss_module)]
    pairs.append((hooks[0].discriminator, hooks[1].discriminator))
    for one, other in pairs:
        for ours, theirs in zip(one.parameters(), other.parameters(), strict=True):
            assert torch.equal(ours, theirs)


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="penalty=-1"):
        AdversarialImitation(steps(3), penalty=-1.0)
    other = AdversarialImitation(steps(3))
    wide = steps(3).set("observation", torch.zeros(3, 7))
    wide["next"] = TensorDict(reward=torch.zeros(3, 1), batch_size=[3])
    with pytest.raises(ConfigError, match=r"have \d+ features .* the expert's \d+: pass data of"):
        other(wide.unsqueeze(0))
    parts = steps(3).set("observation", TensorDict(a=torch.zeros(3, 2), batch_size=[3]))
    with pytest.raises(ConfigError, match=r"no \['observation'\] that is one array.*flatten"):
        AdversarialImitation(parts)
    with pytest.raises(ConfigError, match=r"have no \['action'\]"):
        AdversarialImitation(steps(3).exclude("action"), discriminator=mlp(3, 1))
    with pytest.raises(ConfigError, match="have no transitions"):
        AdversarialImitation(steps(0))
    discrete = steps(3).set("action", torch.tensor([0, 2, 1]))
    for number in (None, 2):
        with pytest.raises(ConfigError, match="actions are 0 to 2: pass the number of actions"):
            AdversarialImitation(discrete, actions=number)
