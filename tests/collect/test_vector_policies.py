"""Policies of every kind, exploration, hidden states, random actions first."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from tensordict.nn import InteractionType, TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.data import Bounded
from torchrl.modules import (
    GRUModule,
    LSTMModule,
    MaskedCategorical,
    OrnsteinUhlenbeckProcessModule,
    ProbabilisticActor,
)
from toy_envs import Counter, Echo, Masked, Nested, recurrent

from hooktrainer import ConfigError, VectorCollector


def linear() -> TensorDictModule:
    return TensorDictModule(nn.Linear(4, 2), in_keys=["observation"], out_keys=["logits"])


def categorical_actor() -> ProbabilisticActor:
    return ProbabilisticActor(
        linear(),
        in_keys=["logits"],
        distribution_class=torch.distributions.Categorical,
        return_log_prob=True,
    )


class Act:
    """Takes the parity of the step as its action; has a buffer that it uses again and again."""

    def __init__(self, as_arrays: bool = False) -> None:
        self.as_arrays = as_arrays
        self.out = torch.zeros(2, dtype=torch.int64)

    def act(self, observation: torch.Tensor) -> dict[str, Any]:
        assert observation.shape == (2, 2)
        assert not torch.is_grad_enabled()
        self.out.copy_(observation[:, 1] % 2)
        out = {"action": self.out, "action_log_prob": self.out * -0.5, "extra": observation}
        return {key: value.numpy() for key, value in out.items()} if self.as_arrays else out


@pytest.mark.parametrize("as_arrays", [False, True])
def test_the_fast_way_records_everything_act_returns(as_arrays: bool) -> None:
    batch = VectorCollector([Counter] * 2, Act(as_arrays), frames_per_batch=8).collect()
    assert batch["action"].tolist() == [[0, 1, 0, 1]] * 2
    assert batch["action_log_prob"].tolist() == [[0, -0.5, 0, -0.5]] * 2
    assert batch["extra"].equal(batch["observation"])


@pytest.mark.parametrize("kind", ["function", "array", "module"])
def test_functions_of_the_observation(kind: str) -> None:
    class Module(nn.Module):
        def forward(self, observation: torch.Tensor) -> torch.Tensor:
            return (observation[:, 1] % 2).long()

    policies: dict[str, Any] = {
        "function": lambda observation: (observation[:, 1] % 2).long(),
        "array": lambda observation: observation.numpy()[:, 1].astype(int) % 2,
        "module": Module(),
    }
    batch = VectorCollector([Counter] * 2, policies[kind], frames_per_batch=8).collect()
    assert batch["action"].tolist() == [[0, 1, 0, 1]] * 2


def test_a_function_of_a_dict_observation() -> None:
    def policy(observation: dict[str, Any]) -> torch.Tensor:
        assert observation["inner"]["image"].dtype == torch.uint8
        return torch.stack([observation["level"] % 2, observation["pair"][:, 0]], -1)

    batch = VectorCollector([Nested], policy, frames_per_batch=3).collect()
    assert batch["action"][0].tolist() == [[0, 0], [1, 1], [0, 2]]


def test_act_gets_the_entries_it_names() -> None:
    class Policy:
        in_keys = ("level", ("inner", "image"))

        def act(self, level: torch.Tensor, image: torch.Tensor) -> dict[str, torch.Tensor]:
            assert image.shape == (1, 2, 2)
            return {"action": torch.stack([level % 2, level], -1)}

    batch = VectorCollector([Nested], Policy(), frames_per_batch=3).collect()
    assert batch["action"][0].tolist() == [[0, 0], [1, 1], [0, 2]]


def test_what_a_policy_writes_on_another_device_is_moved() -> None:
    def policy(observation: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"action": (observation[:, 1] % 2).long(), "extra": observation.to("meta")}

    with pytest.raises(NotImplementedError, match="copy out of meta"):
        VectorCollector([Counter], policy, frames_per_batch=3).collect()


def test_a_tensordict_module() -> None:
    policy = categorical_actor()
    batch = VectorCollector("CartPole-v1", policy, num_envs=3, frames_per_batch=30).collect()
    assert batch["logits"].shape == (3, 10, 2)
    torch.testing.assert_close(batch["logits"], policy(batch.clone())["logits"].detach())
    log_prob = batch["logits"].log_softmax(-1).gather(-1, batch["action"][..., None])[..., 0]
    torch.testing.assert_close(batch["action_log_prob"], log_prob)
    assert not batch["logits"].requires_grad


@pytest.mark.parametrize(
    ("kind", "expected"), [(InteractionType.DETERMINISTIC, 1), (InteractionType.RANDOM, 2)]
)
def test_exploration_type(kind: InteractionType, expected: int) -> None:
    policy = categorical_actor()
    collector = VectorCollector(
        [lambda: Echo(spaces.Discrete(2), 4)], policy, frames_per_batch=60, exploration_type=kind
    )
    nn.init.zeros_(policy[0].module.weight)
    assert len(collector.collect()["action"].unique()) == expected


def box_policy(exploration: nn.Module) -> TensorDictSequential:
    mean = TensorDictModule(
        lambda observation: torch.zeros(len(observation), 1), ["observation"], ["action"]
    )
    return TensorDictSequential(mean, exploration)


def test_ornstein_uhlenbeck_noise_goes_on_from_step_to_step_and_starts_over() -> None:
    class Continuous(Counter):
        def __init__(self) -> None:
            super().__init__(length=3)
            self.action_space = spaces.Box(-9, 9, (1,))

    # Without the random part the noise goes half of the way to mu in every step.
    noise = OrnsteinUhlenbeckProcessModule(
        spec=Bounded(-9, 9, (1,)), eps_end=1.0, sigma=0.0, mu=1.0, theta=0.5, dt=1.0
    )
    collector = VectorCollector([Continuous], box_policy(noise), frames_per_batch=4)
    assert collector.collect()["action"].flatten().tolist() == [0.5, 0.75, 0.875, 0.5]
    batch = collector.collect()
    assert batch["action"].flatten().tolist() == [0.75, 0.875, 0.5, 0.75]
    assert not any(str(key).startswith("_") for key in batch.keys(True, True))


@pytest.mark.parametrize("module", [LSTMModule, GRUModule])
def test_hidden_states_are_carried_and_reset(module: Any) -> None:
    rnn = module(input_size=2, hidden_size=3, in_key="observation", out_key="embedding")
    head = TensorDictModule(
        lambda x: (x[:, 0] > 0).long(), in_keys=["embedding"], out_keys=["action"]
    )
    policy = TensorDictSequential(rnn, head)
    collector = VectorCollector(
        [lambda: Counter(3, draw=False), lambda: Counter(5, draw=False)],
        policy,
        frames_per_batch=14,
    )
    batches = torch.cat([collector.collect(), collector.collect()], 1)
    starts = torch.tensor([[t % 3 == 0 for t in range(14)], [t % 5 == 0 for t in range(14)]])
    assert batches["is_init"][..., 0].equal(starts)
    hidden = [key for key in rnn.in_keys if "recurrent" in key]
    for key in hidden:
        state, after = batches[key], batches["next", key]
        assert state.shape == (2, 14, 1, 3)
        assert (state[starts] == 0).all()
        assert state[:, 1:][~starts[:, 1:]].equal(after[:, :-1][~starts[:, 1:]])
        assert (after != 0).any(-1).all()
    # What was written is what the network gives for these hidden states.
    flat = batches.select("observation", *hidden, "is_init").reshape(-1)
    torch.testing.assert_close(rnn(flat)["embedding"].detach(), batches["embedding"].reshape(-1, 3))


def test_a_masked_policy() -> None:
    logits = TensorDictModule(nn.Linear(2, 3), ["observation"], ["logits"])
    policy = ProbabilisticActor(
        logits,
        in_keys={"logits": "logits", "mask": "action_mask"},
        distribution_class=MaskedCategorical,
    )
    batch = VectorCollector([Masked], policy, frames_per_batch=14).collect()
    assert batch["action"].equal(batch["action_mask"].int().argmax(-1))


def test_random_frames_come_first_and_batches_look_alike() -> None:
    policy = categorical_actor()
    with torch.no_grad():
        policy[0].module.weight.zero_()
        policy[0].module.bias.copy_(torch.tensor([0.0, 50.0]))
    collector = VectorCollector(
        "CartPole-v1", policy, num_envs=4, frames_per_batch=40, init_random_frames=41
    )
    random_state = torch.get_rng_state()
    batches = [collector.collect() for _ in range(2)]
    assert torch.get_rng_state().equal(random_state)  # the policy had no turn yet
    for batch in batches:
        assert len(batch["action"].unique()) == 2
        assert not batch["logits"].any()
    last = collector.collect()
    assert (last["action"] == 1).all()
    assert last["logits"][0, 0].tolist() == [0, 50]
    assert set(last.keys(True, True)) == set(batches[0].keys(True, True))
    assert all(
        last[key].shape == batches[0][key].shape and last[key].dtype == batches[0][key].dtype
        for key in last.keys(True, True)
    )


def test_random_frames_of_a_recurrent_policy() -> None:
    collector = VectorCollector(
        [lambda: Counter(3)], recurrent(), frames_per_batch=4, init_random_frames=4
    )
    batch = collector.collect()
    assert batch["is_init"].flatten().tolist() == [True, False, False, True]
    assert not batch["recurrent_state"].any()
    assert collector.collect()["is_init"].flatten().tolist() == [False, False, True, False]


def test_weights_can_be_copied_from_another_policy() -> None:
    mine, other = categorical_actor(), categorical_actor()
    collector = VectorCollector("CartPole-v1", mine, num_envs=1, frames_per_batch=1)
    collector.update_policy_weights_()
    collector.update_policy_weights_(mine)
    for weights in (other, other.state_dict(), TensorDict.from_module(other)):
        nn.init.normal_(next(other.parameters()))
        collector.update_policy_weights_(weights)
        assert all(map(torch.equal, mine.parameters(), other.parameters()))
    with pytest.raises(TypeError, match="no parameters to update"):
        VectorCollector("CartPole-v1", num_envs=1, frames_per_batch=1).update_policy_weights_(other)


class Looks:
    """Reads what is not there."""

    in_keys = ("pixels",)

    def act(self, pixels: torch.Tensor) -> dict[str, torch.Tensor]:
        raise AssertionError


def module(function: Any, in_keys: list[Any], out_keys: list[Any]) -> TensorDictModule:
    return TensorDictModule(function, in_keys=in_keys, out_keys=out_keys)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (
            lambda o: torch.zeros(2, 2).long(),
            r"int64 \[2, 2\]; .* needs indices \[2\]. For one-hot",
        ),
        (lambda o: torch.zeros(3).long(), r"int64 \[3\]; Discrete\(2\) with 2 env"),
        (lambda o: torch.zeros(2), r"float32 \[2\]; .* needs indices"),
        (lambda o: "left", "returned {.action.: "),
        (lambda o: {"act": torch.zeros(2)}, "returned {.act.: "),
        (
            lambda o: {"action": torch.zeros(2).long(), "value": torch.zeros(1, 2)},
            r"output 'value' has shape \[1, 2\]",
        ),
        (module(lambda o: o, ["observation"], ["logits"]), "its out_keys have to hold"),
        (module(lambda o: o, ["pixels"], ["action"]), r"reads \['pixels'\], and the"),
        (Looks(), r"reads \['pixels'\], and the environments give"),
        (
            module(lambda o: (o, o), ["observation"], ["observation", "action"]),
            r"writes \['observation'\], which the environments write",
        ),
        (
            module(lambda o, h: (o, h), ["observation", "h"], ["action", ("next", "h")]),
            r"The shape of the hidden state \['h'\] is unknown",
        ),
    ],
)
def test_a_policy_that_cannot_work_is_refused(policy: Any, message: str) -> None:
    collector = VectorCollector([Counter] * 2, policy, frames_per_batch=2)
    with pytest.raises(ConfigError, match=message):
        collector.collect()


def test_what_cannot_act_is_refused() -> None:
    with pytest.raises(ConfigError, match="policy=3 cannot act"):
        VectorCollector([Counter], 3, frames_per_batch=1)  # type: ignore[arg-type]
