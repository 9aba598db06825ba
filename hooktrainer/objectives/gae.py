"""Advantage estimators: GAE (Schulman et al., 2016, arXiv:1506.02438) and V-trace."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase
from torch import Tensor, nn

from ..base.checks import check_fraction, check_positive
from .common import KeyedModule, as_tensordict, evaluate, next_key, require


def generalized_advantage_estimate(
    gamma: float,
    lmbda: float,
    state_value: Tensor,
    next_state_value: Tensor,
    reward: Tensor,
    done: Tensor,
    terminated: Tensor | None = None,
    acts: Tensor | None = None,
    next_acts: Tensor | None = None,
    *,
    time_dim: int = -2,
) -> tuple[Tensor, Tensor]:
    """Compute advantages and value targets of trajectories, equations 11 to 16 of the paper.

    With ``delta_t = r_t + gamma * V(s_{t+1}) * (1 - terminated_t) - V(s_t)``, the advantage is
    ``A_t = delta_t + gamma * lmbda * (1 - done_t) * A_{t+1}``. A truncated episode is bootstrapped
    with the value of its final observation, a terminated one is not. It takes ``log2(time)`` steps
    over all environments at once, and does not synchronize with the device.

    Where agents take turns, a step of an agent spans from its turn to its next one: its reward is
    the sum of all rewards of these rows, and discounts count turns.

    Args:
        gamma: Discount factor.
        lmbda: The lambda of GAE: 0 for one-step errors, 1 for Monte-Carlo returns.
        state_value: ``V(s_t)``, floating point.
        next_state_value: ``V(s_{t+1})``, of the observation before any reset.
        reward: ``r_t``.
        done: Whether the episode ended with this step, bool.
        terminated: Whether it ended in a terminal state, bool. Default: ``done``.
        acts: Whether the agent acts in a row, bool, where agents take turns. The estimates of other
            rows are meaningless, as are those of a turn whose next one is not in the batch.
        next_acts: The same of the next row.
        time_dim: The dimension of time. All tensors have one shape, such as ``[*batch, time, 1]``.

    Returns:
        Advantages and value targets ``A_t + V(s_t)``, shaped as the values.

    Raises:
        ValueError: If the shapes differ.
    """
    terminated = done if terminated is None else terminated
    shapes = [tuple(x.shape) for x in (state_value, next_state_value, reward, done, terminated)]
    if len(set(shapes)) != 1:
        raise ValueError(
            "state_value {}, next_state_value {}, reward {}, done {} and terminated {} must have "
            "one shape.".format(*shapes)
        )
    # Not a product: the value of a terminal observation may be anything, NaN included.
    bootstrap = torch.where(terminated, 0.0, next_state_value)
    if acts is not None and next_acts is not None:
        waits = ~(next_acts | done)  # in the next row, of which reward and next value count
        bootstrap = torch.where(waits, 0.0, bootstrap)
        reward, bootstrap = (
            discounted_suffix_sums(x, waits.to(x.dtype), time_dim) for x in (reward, bootstrap)
        )
    delta = reward + gamma * bootstrap - state_value
    discount = (~done).to(delta.dtype) * (gamma * lmbda)
    if acts is not None and next_acts is not None:
        # A turn that is open adds nothing.
        delta = torch.where(_whole_turns(acts, next_acts, done, time_dim), delta, 0.0)
        discount = torch.where(acts, discount, (~done).to(delta.dtype))
    advantage = discounted_suffix_sums(delta, discount, time_dim)
    return advantage, advantage + state_value


def _whole_turns(acts: Tensor, next_acts: Tensor, done: Tensor, dim: int) -> Tensor:
    """Return the turns after which a row closes them: the agent's next turn, or the end."""
    closes = next_acts | done
    return acts & closes.flip(dim).cummax(dim).values.flip(dim)


def discounted_suffix_sums(x: Tensor, discount: Tensor, dim: int) -> Tensor:
    """Solve ``y_t = x_t + discount_t * y_{t+1}`` along ``dim``, with ``y`` zero past the end.

    Doubling (Hillis and Steele, 1986, Data parallel algorithms): after each step, ``x_t`` holds the
    first ``span`` terms of ``y_t``, and ``discount_t`` the product of as many discounts.
    """
    x, discount = x.movedim(dim, 0), discount.movedim(dim, 0)
    span = 1
    while span < len(x):
        longer = torch.addcmul(x[:-span], discount[:-span], x[span:])
        x = torch.cat([longer, x[-span:]])
        discount = torch.cat([discount[:-span] * discount[span:], discount[-span:]])
        span *= 2
    return x.movedim(0, dim)


class GAE(KeyedModule):
    """Writes advantages and value targets into a batch, with TorchRL's arguments and keys.

    The network is called on the next observation only where an episode or the batch ends; other
    next values are those of the next row.

    Args:
        gamma: Discount factor.
        lmbda: The lambda of GAE.
        value_network: A TensorDict module that writes ``"state_value"``, row by row: with a memory,
            from the hidden states of each step.
        average_gae: Whether advantages get mean 0 and standard deviation 1 over the batch.

    Where agents take turns, ``set_keys(mask=...)`` names the entry of the agents that act,
    ``[*batch, time, agents]``, and ``set_keys(learned=...)`` an entry to write: the turns after
    which the batch has the agent's next one, or its end. Losses leave out the others.

    Attributes:
        compiled: Replaces `compute`, and is called with few different shapes; ``None`` for
            `compute`.

    Examples:
        >>> gae = GAE(gamma=0.99, lmbda=0.95, value_network=ValueNetwork(mlp(4, 1)))
        >>> trainer.register_op("batch_process", gae)
    """

    value_network: Any

    def __init__(
        self,
        *,
        gamma: float,
        lmbda: float,
        value_network: nn.Module,
        average_gae: bool = False,
    ) -> None:
        super().__init__(
            advantage="advantage",
            value_target="value_target",
            value="state_value",
            reward="reward",
            done="done",
            terminated="terminated",
            mask=None,
            learned=None,
        )
        self.gamma = check_fraction("gamma", gamma)
        self.lmbda = check_fraction("lmbda", lmbda)
        # Not a submodule: its parameters are trained, and saved, by the loss.
        self.__dict__["value_network"] = value_network
        self.average_gae = average_gae
        self.compiled: Callable[..., Any] | None = None

    @property
    def in_keys(self) -> list[NestedKey]:
        keys, states = self.tensor_keys, self.value_network.in_keys
        following = [*states, keys.reward, keys.done, keys.terminated]
        masks = [] if keys.mask is None else [keys.mask, next_key(keys.mask)]
        return [*states, *map(next_key, following), *masks]

    @property
    def out_keys(self) -> list[NestedKey]:
        """Entries it writes."""
        keys = self.tensor_keys
        written = [keys.advantage, keys.value_target, keys.value, next_key(keys.value)]
        return written if keys.learned is None else [*written, keys.learned]

    @torch.no_grad()
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the estimates and return ``tensordict``.

        Args:
            tensordict: ``[*batch, time]``, with rewards and ends ``[*batch, time, 1]`` under
                ``"next"``. With values of several agents, ``[*batch, time, agents, 1]``, these may
                have either shape.
        """
        keys, following, shape = self.tensor_keys, tensordict.get("next"), tensordict.shape
        reward, done = (require(following, key, self) for key in (keys.reward, keys.done))
        ends = (reward, done, following.get(keys.terminated, done), *self._extras(tensordict))
        now, then = (  # as [batch, time, *features]
            [entry.reshape(-1, shape[-1], *entry.shape[len(shape) :]) for entry in entries]
            for entries in (
                [require(part, key, self) for key in self.value_network.in_keys]
                for part in (tensordict, following)
            )
        )
        compute = self.compiled or self.compute
        value, next_value, advantage, target = compute(now, then, self._new(now, then), ends, shape)
        tensordict.set(keys.value, value)
        following.set(keys.value, next_value)
        tensordict.set(keys.advantage, advantage)
        if keys.mask is not None and keys.learned is not None:
            tensordict.set(keys.learned, self._learned(tensordict))
        return tensordict.set(keys.value_target, target)

    def compute(
        self,
        now: Sequence[Tensor],
        then: Sequence[Tensor],
        rows: slice | Tensor,
        ends: Sequence[Tensor],
        shape: Sequence[int],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Compute values and estimates, as a compilable function of tensors and the network.

        Args:
            now: The network's inputs, ``[batch, time, ...]`` each.
            then: Those of the next step.
            rows: Where these differ from the next row, as indices of ``[batch * time]``.
            ends: Rewards, done, terminated and `_extras`, ``[*batch, time, 1]`` each.
            shape: ``[*batch, time]``.

        Returns:
            Values, next values, advantages and value targets, ``[*batch, time, 1]``.
        """
        inputs = [
            torch.cat([a.flatten(0, 1), b.flatten(0, 1)[rows]])
            for a, b in zip(now, then, strict=True)
        ]
        values = evaluate(self.value_network, inputs, self.tensor_keys.value, fast=True)
        value = values[: math.prod(shape)]
        next_value = value.roll(-1, 0)
        next_value[rows] = values[math.prod(shape) :]
        whole = (*shape, *values.shape[1:])
        value, next_value = value.view(whole), next_value.view(whole)
        missing = [value.ndim - entry.ndim for entry in ends]
        each = [  # what is of all agents together, for each of them
            entry.reshape(*entry.shape[:-1], *[1] * more, -1).expand_as(value) if more else entry
            for entry, more in zip(ends, missing, strict=True)
        ]
        advantage, value_target = self._estimate(value, next_value, *each, time_dim=len(shape) - 1)
        if self.average_gae:
            std, mean = torch.std_mean(advantage)
            advantage = (advantage - mean) / std.clamp_min(1e-4)
        return value, next_value, advantage, value_target

    def _extras(self, tensordict: TensorDictBase) -> Sequence[Tensor]:
        """Return further inputs of the estimate: where agents take turns, which of them act."""
        key = self.tensor_keys.mask
        if key is None:
            return ()
        return [require(part, key, self).unsqueeze(-1) for part in (tensordict, tensordict["next"])]

    def _learned(self, tensordict: TensorDictBase) -> Tensor:
        """Return the turns that are complete, ``[*batch, time, agents]``."""
        acts, next_acts = (entry.squeeze(-1) for entry in self._extras(tensordict))
        done, dim = tensordict["next"].get(self.tensor_keys.done).squeeze(-1), tensordict.ndim - 1
        done = done.view(*done.shape, *[1] * (acts.ndim - done.ndim)).expand_as(acts)
        return _whole_turns(acts, next_acts, done, dim)

    def _estimate(self, *entries: Tensor, time_dim: int) -> tuple[Tensor, Tensor]:
        """Return advantages and targets for values, next values, rewards, ends and `_extras`."""
        return generalized_advantage_estimate(self.gamma, self.lmbda, *entries, time_dim=time_dim)

    def _new(self, now: Sequence[Tensor], then: Sequence[Tensor]) -> slice | Tensor:
        """Return the rows where the next observation is not, bit for bit, that of the next row."""
        if not now[0].is_cpu:
            return slice(None)  # finding the few would wait for the device
        new = torch.ones(now[0].shape[:2], dtype=torch.bool)
        if new.shape[1] > 1:
            pairs = zip(now, then, strict=True)
            same = [(a[:, 1:] == b[:, :-1]).reshape(*new[:, 1:].shape, -1) for a, b in pairs]
            new[:, :-1] = ~torch.cat(same, -1).all(-1)
        rows = new.flatten().nonzero().squeeze(-1)
        if self.compiled is None:
            return rows
        # Pad to few different lengths; a repeated row does no harm.
        most = len(new) + new.numel() // 8
        if len(rows) > most:
            return torch.arange(new.numel())
        return torch.cat([rows, rows[:1].expand(most - len(rows))])


# -- V-trace: advantages of batches that an older policy collected (arXiv:1802.01561).


def vtrace_estimate(
    gamma: float,
    lmbda: float,
    state_value: Tensor,
    next_state_value: Tensor,
    reward: Tensor,
    done: Tensor,
    terminated: Tensor,
    log_ratio: Tensor,
    *,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
    time_dim: int = -2,
) -> tuple[Tensor, Tensor]:
    """Compute the advantages and value targets of V-trace (Espeholt et al., 2018, section 4.1).

    With ``rho_t = min(rho_clip, ratio_t)``, ``c_t = lmbda * min(c_clip, ratio_t)`` and the errors
    ``delta_t = r_t + gamma * V(s_{t+1}) - V(s_t)``, the targets are
    ``v_t = V(s_t) + rho_t * delta_t + gamma * c_t * (v_{t+1} - V(s_{t+1}))``, and the advantages
    ``r_t + gamma * v_{t+1} - V(s_t)``, which the paper multiplies by ``rho_t``. Ends are treated as
    by `generalized_advantage_estimate`, which gives the same targets where all ratios are 1.

    Args:
        gamma: Discount factor.
        lmbda: Factor of ``c_t``; 1 in the paper.
        state_value: ``V(s_t)``, floating point.
        next_state_value: ``V(s_{t+1})``, of the observation before any reset.
        reward: ``r_t``.
        done: Whether the episode ended with this step, bool.
        terminated: Whether it ended in a terminal state, bool.
        log_ratio: Log-probability of the action under the current policy less the recorded one.
        rho_clip: Bound of the weights of errors. It decides which policy's value is the limit.
        c_clip: Bound of the weights that carry later errors back. It decides the variance.
        time_dim: The dimension of time. All tensors have one shape, such as ``[*batch, time, 1]``.

    Returns:
        Advantages, not multiplied by ``rho_t``, and value targets, shaped as the values.
    """
    ratio = log_ratio.exp()
    bootstrap = torch.where(terminated, 0.0, next_state_value)
    delta = ratio.clamp_max(rho_clip) * (reward + gamma * bootstrap - state_value)
    carried = (~done).to(delta.dtype) * (gamma * lmbda) * ratio.clamp_max(c_clip)
    target = state_value + discounted_suffix_sums(delta, carried, time_dim)
    # Past an end, the next row belongs to another episode.
    last = target.shape[time_dim] - 1
    later = target.narrow(time_dim, 1, last)
    following = torch.cat([later, bootstrap.narrow(time_dim, last, 1)], time_dim)
    following = torch.where(done, bootstrap, following)
    return reward + gamma * following - state_value, target


class VTrace(GAE):
    """Writes the advantages and value targets of V-trace, for batches of an older policy.

    It weights each step by the ratio of the action's probability now to ``"action_log_prob"``, as
    the collecting policy recorded it. Use it in place of `GAE` where batches are collected ahead.

    Args:
        gamma, value_network, average_gae: As for `GAE`.
        lmbda: Factor of the weights that carry errors back; 1 in the paper.
        actor_network: The policy, as for `ClipPPOLoss`.
        rho_clip, c_clip: Bounds of the weights, as for `vtrace_estimate`.
        weighted: Whether advantages are multiplied by ``min(rho_clip, ratio)``, as in the paper. A
            loss that has the ratio itself, such as `ClipPPOLoss`, takes ``False``.

    Examples:
        >>> vtrace = VTrace(gamma=0.99, value_network=critic, actor_network=actor)
        >>> ValueEstimatorHook(vtrace).register(trainer)
    """

    actor_network: Any

    def __init__(
        self,
        *,
        gamma: float,
        lmbda: float = 1.0,
        value_network: nn.Module,
        actor_network: nn.Module,
        rho_clip: float = 1.0,
        c_clip: float = 1.0,
        weighted: bool = False,
        average_gae: bool = False,
    ) -> None:
        super().__init__(
            gamma=gamma, lmbda=lmbda, value_network=value_network, average_gae=average_gae
        )
        check_positive("rho_clip", rho_clip)
        check_positive("c_clip", c_clip)
        vars(self.tensor_keys).update(action="action", sample_log_prob="action_log_prob")
        self.__dict__["actor_network"] = actor_network  # not a submodule, as the value network
        self.rho_clip, self.c_clip = rho_clip, c_clip
        self.weighted = weighted

    @property
    def in_keys(self) -> list[NestedKey]:
        keys = self.tensor_keys
        read = [*self.actor_network.in_keys, keys.action, keys.sample_log_prob]
        return list(dict.fromkeys([*super().in_keys, *read]))

    def _extras(self, tensordict: TensorDictBase) -> Sequence[Tensor]:
        """Return the log-ratios ``[*batch, time, 1]``."""
        keys, actor, dims = self.tensor_keys, self.actor_network, tensordict.ndim
        recorded = require(tensordict, keys.sample_log_prob, self)
        names = [*actor.in_keys, keys.action]
        *inputs, action = (require(tensordict, key, self).flatten(0, dims - 1) for key in names)
        if hasattr(actor, "remember"):  # of hooktrainer.networks; hidden states are of each step
            parameters, _ = actor.remember(*inputs)
            log_prob, _ = actor.distribution.log_prob_and_entropy(parameters, action)
        else:
            log_prob = actor.get_dist(as_tensordict(actor.in_keys, inputs)).log_prob(action)
        return [(log_prob.view(recorded.shape) - recorded).unsqueeze(-1)]

    def _estimate(self, *entries: Tensor, time_dim: int) -> tuple[Tensor, Tensor]:
        advantage, target = vtrace_estimate(
            self.gamma,
            self.lmbda,
            *entries,
            rho_clip=self.rho_clip,
            c_clip=self.c_clip,
            time_dim=time_dim,
        )
        if self.weighted:
            advantage = advantage * entries[-1].exp().clamp_max(self.rho_clip)
        return advantage, target
