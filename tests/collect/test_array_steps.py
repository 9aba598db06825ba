"""The quickest way through a rollout: the same bits, and not taken where it would be another."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict.nn import InteractionType

from hooktrainer import VectorCollector
from hooktrainer.collect.actors import FunctionActor
from hooktrainer.networks import Categorical, CategoricalPolicy, mlp


class OtherSample(CategoricalPolicy):
    def sample(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        return super().sample(*inputs)


class Reversed(Categorical):
    def sample(self, parameters: torch.Tensor, *rest: Any) -> dict[str, torch.Tensor]:
        return super().sample(-parameters, *rest)


def policy_of(kind: type[CategoricalPolicy] = CategoricalPolicy) -> CategoricalPolicy:
    torch.manual_seed(0)
    return kind(mlp(4, 2, (16, 16)))


def collector(policy: Any, horizon: int = 16, **options: Any) -> VectorCollector:
    options = {"num_envs": 3, "frames_per_batch": 3 * horizon, **options}
    return VectorCollector("CartPole-v1", policy, **options)


def is_quick(source: VectorCollector) -> bool:
    actor = source._rollout._actor  # type: ignore[union-attr]
    return isinstance(actor, FunctionActor) and actor.is_fast


@pytest.mark.parametrize("mode", ["sync", "vector_entry_point"])
@pytest.mark.parametrize("exploration", [InteractionType.RANDOM, InteractionType.DETERMINISTIC])
def test_batches_are_the_same_bits(mode: Any, exploration: InteractionType) -> None:
    options: Any = {"vectorization_mode": mode, "exploration_type": exploration}
    found = []
    for kind in (CategoricalPolicy, OtherSample):
        policy = policy_of(kind)
        source = collector(policy, **options)
        batches = []
        for _ in range(4):
            batches.append(source.collect())
            assert is_quick(source) == (kind is CategoricalPolicy)  # from the first batch on
            for parameter in policy.parameters():  # as an optimizer step does
                parameter.data.add_(0.01)
        found.append((torch.stack(batches), torch.get_rng_state()))
        source.shutdown()
    (quick, after), (plain, plain_after) = found
    assert (quick == plain).all()
    assert torch.equal(after, plain_after)
    assert quick["next", "done"].any()


def test_parameters_in_new_memory_are_seen() -> None:
    policy, other = policy_of(), policy_of()
    source = collector(policy, exploration_type=InteractionType.DETERMINISTIC)
    source.collect()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.neg_()
    policy.load_state_dict(other.state_dict(), assign=True)
    batch = source.collect()
    assert is_quick(source)
    assert torch.equal(batch["action"], policy.network(batch["observation"]).argmax(-1))
    source.shutdown()


@pytest.mark.parametrize("kind", ["policy", "distribution", "short", "other type"])
def test_what_would_be_another_policy_is_asked_itself(kind: str) -> None:
    policy = policy_of(OtherSample if kind == "policy" else CategoricalPolicy)
    if kind == "distribution":
        policy.distribution = Reversed()
    if kind == "other type":  # refused at the first call, by torch
        policy.double()
    source = collector(policy, horizon=4 if kind == "short" else 16)
    if kind == "other type":
        with pytest.raises(RuntimeError, match="dtype"):
            source.collect()
    else:
        source.collect()
        assert not is_quick(source)
    source.shutdown()
