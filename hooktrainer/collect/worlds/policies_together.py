"""`PoliciesTogether`: the policies of several learners as one computation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict import NestedKey
from torch import nn
from torch.func import functional_call

from ...graphs.independent import why_not_together
from ...graphs.products import REGISTER
from ...graphs.random_calls import GivenDraws, RandomCall
from ...graphs.side_by_side import rows_like
from ...networks import MemoryTrunk, Policy

# What a policy has to do as `Policy` does for several to be asked at once.
_OWN = ("act", "sample", "draw", "infer", "evaluate", "complete")

Tensors = Mapping[str, torch.Tensor]


class PoliciesTogether:
    """Asks several policies at once, each for its own environments.

    Their parameters are the rows of arrays, their networks batched products. What one of them
    returns does not depend, bit for bit, on the others: matrices lie alike in memory, for which the
    environments of each are filled up with zeros, and whoever uses this puts nobody's numbers at
    the ends of tensors.

    Args:
        pattern: The policy of one of the learners; the others are like it.
        draws: What it draws in a step.
        rows: Of how many learners.
        num_envs: How many environments each has.

    Attributes:
        tensors: Every parameter and buffer by its name, ``[rows, ...]``.
    """

    def __init__(
        self, pattern: Policy, draws: Sequence[RandomCall], rows: int, num_envs: int
    ) -> None:
        self._policy, self._draws = _Functions(pattern), draws
        self._rows, self._num_envs = rows, num_envs
        self._filled = -(-num_envs // (step := _alike(pattern))) * step - num_envs
        self._arrays: list[torch.Tensor] = []
        self._views: list[list[torch.Tensor]] = []  # by tensor and learner
        self.tensors: dict[str, torch.Tensor] = {}
        for name, tensor in _by_name(self._policy).items():
            array = rows_like(tensor, rows)
            self._arrays.append(array)
            self.tensors[name] = array[:, : tensor.numel()].view(rows, *tensor.shape)
            self._views.append(list(self.tensors[name].unbind(0)))

    def gather(self, policies: Sequence[Policy]) -> None:
        """Take over the parameters as they are; those behind are the first one's again."""
        for learner, policy in enumerate(policies):
            own = _by_name(policy).values()
            for rows, tensor in zip(self._views, own, strict=True):
                rows[learner].copy_(tensor.detach())
        for array in self._arrays:
            array[len(policies) :] = array[0]

    def numbers(self, steps: int) -> list[torch.Tensor]:
        """Memory for what is drawn in some steps, ``[steps, rows, ...]`` for each drawing."""
        with torch.random.fork_rng([]):
            one = [draw() for draw in self._draws]
        return [x.new_zeros(steps, self._rows, *x.shape) for x in one]

    def sample(
        self,
        inputs: Sequence[torch.Tensor],
        tensors: Tensors,
        numbers: Sequence[torch.Tensor],
    ) -> dict[NestedKey, torch.Tensor]:
        """What `Policy.sample` returns.

        Args:
            inputs: What the policies take, ``[rows * num_envs, ...]`` each.
            tensors: Parameters and buffers.
            numbers: What they would draw, ``[rows, ...]`` each.

        Returns:
            ``[rows * num_envs, ...]`` each.
        """

        def one(inputs: Any, tensors: Any, numbers: Any) -> Any:
            with GivenDraws(numbers):
                return functional_call(self._policy, tensors, (inputs, self._filled))

        return self._flat(torch.func.vmap(one)(self._by_learner(inputs), tensors, list(numbers)))

    def complete(
        self, sample: Mapping[NestedKey, torch.Tensor], tensors: Tensors
    ) -> dict[NestedKey, torch.Tensor]:
        """What `Policy.complete` returns of samples ``[rows * num_envs, ...]``."""

        def one(values: Any, tensors: Any) -> Any:
            named = dict(zip(sample, values, strict=True))
            return functional_call(self._policy, tensors, (named,))

        return self._flat(torch.func.vmap(one)(self._by_learner(sample.values()), tensors))

    def _by_learner(self, values: Any) -> list[torch.Tensor]:
        return [x.view(self._rows, self._num_envs, *x.shape[1:]) for x in values]

    def _flat(self, out: Mapping[Any, torch.Tensor]) -> dict[NestedKey, torch.Tensor]:
        return {key: x.flatten(0, 1) for key, x in out.items()}


def why_not_asked_together(policy: Any) -> str | None:
    """Why a policy cannot be asked together with others; `None` if it can."""
    kind = type(policy).__name__
    if not isinstance(policy, Policy):
        return f"the policy is a {kind}, and those that are asked together are Policy"
    if any(getattr(type(policy), name) is not getattr(Policy, name) for name in _OWN):
        return f"{kind} acts in a way of its own"
    if isinstance(policy.trunk, MemoryTrunk):
        return "the policy has a memory"
    return why_not_together(policy)


class _Functions(nn.Module):
    """A policy as functions of its parameters and of observations, or of what it sampled."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, given: Any, filled: int = 0) -> dict[str, torch.Tensor]:
        if isinstance(given, dict):
            return self.policy.complete(given)
        number = len(given[0])
        if filled:
            given = [torch.cat([x, x.new_zeros(filled, *x.shape[1:])]) for x in given]
        return self.policy.draw(self.policy.evaluate(*given)[:number])


def _by_name(module: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers, each once, in order."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _alike(module: nn.Module) -> int:
    """Of how many rows matrices have to be so that all begin alike within a vector register."""
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    widths = {width for layer in layers for width in (layer.in_features, layer.out_features)}
    return math.lcm(1, *(REGISTER // math.gcd(REGISTER, width) for width in widths))
