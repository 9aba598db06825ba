"""`ReplayLoss`, the base of replay losses of transitions or, with a memory, of sequences."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from tensordict import NestedKey, TensorDictBase
from torch import Tensor

from ..base.checks import check_count, check_fraction, named
from ..base.tensordicts import entries_of
from ..errors import ConfigError
from ..networks import MemoryTrunk
from ..networks.memory import IS_INIT
from .common import (
    DISTANCES,
    Entries,
    KeyOf,
    Loss,
    evaluate,
    evaluate_frozen,
    next_key,
    this_key,
)
from .multi_step import STEPS, multi_step_return

_OWN, _TARGET = "own", "target"
_MAX_SHARE = 0.9  # of the greatest error in the priority of a sequence


class ReplayLoss(Loss):
    """Base class of losses of transitions ``[batch]`` or, for networks with a memory, of sequences.

    It reads the networks' inputs, now and under ``"next"``, ``"action"``, ``("next", "reward")``,
    ``("next", "terminated")`` and, if they exist, ``"priority_weight"`` and
    ``"steps_to_next_obs"``, the number of steps of a transition, by `hooktrainer.MultiStepReplay`.

    Networks with a memory share one `MemoryTrunk`, and their targets a copy of it; those of several
    groups of agents have one for each group. A batch ``[batch]`` then holds sequences as
    `hooktrainer.SequenceReplay` stores them: entries ``[batch, time, ...]`` and the hidden states
    of the first step, ``[batch, 1, ...]``. The first ``burn_in`` steps only update the states,
    without gradient. The others are transitions of features
    (Kapturowski et al., 2019, Recurrent Experience Replay in Distributed Reinforcement Learning).
    The final observation of an episode or sequence is processed from the states after its last
    step. The priority of a sequence is 0.9 of its greatest plus 0.1 of its mean error, as in that
    paper, whose errors are absolute; those of `DQNLoss` are squared.

    Args:
        gamma: Discount factor.
        loss_function: Distance of values to their targets: ``"l1"``, ``"l2"`` or ``"smooth_l1"``.
        burn_in: Steps at the start of each sequence that are not trained on.
        n_steps: Rewards in the target of a step of a sequence; fewer at the end of it and of an
            episode.
    """

    _trunks: Sequence[MemoryTrunk] = ()
    _may_have_several = False  # memories
    _error_dims: tuple[int, ...] = ()  # of "td_error", after those of the batch
    _more_keys: ClassVar[Mapping[str, NestedKey]] = {}

    def __init__(
        self,
        *,
        gamma: float = 0.99,
        loss_function: str = "smooth_l1",
        burn_in: int = 0,
        n_steps: int = 1,
    ) -> None:
        super().__init__(
            action="action",
            reward="reward",
            terminated="terminated",
            priority="td_error",
            priority_weight="priority_weight",
            steps_to_next_obs=STEPS,
            **self._more_keys,
        )
        self.gamma = check_fraction("gamma", gamma)
        self._distance = named("loss function", loss_function, DISTANCES)
        check_count("burn_in", burn_in, least=0)
        self.burn_in = burn_in
        check_count("n_steps", n_steps)
        self.n_steps = n_steps

    @property
    def in_keys(self) -> list[NestedKey]:
        keys = self.tensor_keys
        return [*self._reads(keys.action), next_key(keys.reward), next_key(keys.terminated)]

    @property
    @abstractmethod
    def _networks(self) -> Sequence[Any]:
        """The networks that are trained."""

    @property
    def hidden_keys(self) -> list[NestedKey]:
        """Hidden states that it reads; a sequence holds the first of each."""
        return [key for trunk in self._trunks for key in trunk.hidden_keys]

    def _use_memory(self) -> None:
        """Find the memory of the networks, once they are set.

        Raises:
            ConfigError: If they have several, or ``burn_in`` or ``n_steps`` is given without a
                memory.
        """
        found = dict.fromkeys(getattr(network, "trunk", None) for network in self._networks)
        trunks = [each for each in found if isinstance(each, MemoryTrunk)]
        more = len(found) > (len(trunks) if self._may_have_several else 1)
        if trunks and more:
            raise ConfigError(
                f"{type(self).__name__}: its networks have several memories, or not all have one."
            )
        if not trunks and self.burn_in:
            raise ConfigError(
                f"{type(self).__name__}: burn_in={self.burn_in} is for networks with a memory, and "
                "these have none."
            )
        if not trunks and self.n_steps > 1:
            raise ConfigError(
                f"{type(self).__name__}: n_steps={self.n_steps} is for networks with a memory, and "
                "these have none: use MultiStepReplay in place of ReplayBufferTrainer."
            )
        self.__dict__["_trunks"] = trunks  # not submodules: they are the networks'

    def _reads(self, *rest: NestedKey) -> list[NestedKey]:
        """Return the states that are read, of this step and the next, and ``rest``."""
        states = [key for each in self._networks for key in each.in_keys if key not in rest]
        carried = [IS_INIT, *self.hidden_keys]
        following = [next_key(key) for key in states if key not in carried]
        return list(dict.fromkeys([*states, *rest, *following]))

    @property
    def _optional(self) -> Sequence[NestedKey]:
        """Further entries that it reads if they exist."""
        return [self.tensor_keys.priority_weight, self.tensor_keys.steps_to_next_obs]

    @abstractmethod
    def _row_losses(self, entries: Entries) -> dict[str, Tensor]:
        """Losses, diagnostics and ``"td_error"`` of transitions."""

    def read(self, tensordict: TensorDictBase) -> Entries:
        """See `Loss.read`; raises `ConfigError` if a batch of sequences has several dimensions."""
        entries = {**super().read(tensordict), **entries_of(tensordict, self._optional)}
        if self._trunks and tensordict.ndim != 1:
            raise ConfigError(
                f"{type(self).__name__}: the batch is {list(tensordict.shape)}; of networks with a "
                "memory it is [sequences], their entries [sequences, time, ...]."
            )
        return entries

    def losses(self, entries: Entries) -> dict[str, Tensor]:
        return self._row_losses(self._unrolled(entries) if self._trunks else entries)

    @property
    def _read_apart(self) -> Sequence[NestedKey]:
        """Entries that are read, now and under ``"next"``, by more than the memories."""
        return []

    def _unrolled(self, entries: Entries) -> dict[NestedKey, Tensor]:
        """Replace the memories' inputs by features, for the steps after ``burn_in``."""
        observed = [key for trunk in self._trunks for key in trunk.observed]
        carried = {IS_INIT, *self.hidden_keys, *observed, *map(next_key, observed)}
        carried -= {*self._read_apart, *map(next_key, self._read_apart)}
        time = entries[observed[0]].shape[1] - self.burn_in
        if time < 1:
            raise ConfigError(
                f"{type(self).__name__}: burn_in={self.burn_in} leaves nothing of sequences of "
                f"{time + self.burn_in} steps."
            )
        rows = {
            key: _rows(value, self.burn_in, time)
            for key, value in entries.items()
            if key not in carried
        }
        targets = {
            tuple(module.hidden_keys): module
            for name, network in self.named_children()
            if name.startswith("target_")  # of which those with one memory share a copy
            for module in network.modules()
            if isinstance(module, MemoryTrunk)
        }
        for trunk in self._trunks:
            inputs = [entries[key] for key in trunk.in_keys]
            then = [_rows(entries[next_key(key)], self.burn_in, time) for key in trunk.observed]
            own, late = _features(_OWN, trunk), _features(_TARGET, trunk)
            rows[own], states = _unroll(trunk, inputs, self.burn_in)
            with torch.no_grad():
                rows[next_key(own)] = _advance(trunk, then, states)
                if target := targets.get(tuple(trunk.hidden_keys)):
                    rows[late], states = _unroll(target, inputs, self.burn_in)
                    rows[next_key(late)] = _advance(target, then, states)
        if self.n_steps > 1:
            begins = entries[IS_INIT][:, self.burn_in :, 0]
            self._make_multi_step(rows, begins)
        return rows

    def _make_multi_step(self, rows: dict[NestedKey, Tensor], begins: Tensor) -> None:
        """Make rows transitions of up to ``n_steps``; episodes begin at ``[sequences, time]``."""
        reward_key = next_key(self.tensor_keys.reward)
        reward = rows[reward_key].view(begins.shape)
        ends = rows[next_key(self.tensor_keys.terminated)].view(begins.shape).clone()
        ends[:, :-1] |= begins[:, 1:]
        total, steps = (
            x.flatten() for x in multi_step_return(reward, ends, self.n_steps, self.gamma)
        )
        last = torch.arange(len(steps), device=steps.device) + steps - 1
        for key in [key for key in rows if isinstance(key, tuple) and key[0] == "next"]:
            rows[key] = rows[key][last]
        rows[reward_key] = total
        rows[self.tensor_keys.steps_to_next_obs] = steps

    def _one_step_target(self, entries: Entries, next_value: Tensor) -> Tensor:
        """Return ``reward + gamma**steps * next_value * (1 - terminated)``, ``[batch]``."""
        reward, terminated = (
            entries[next_key(key)].reshape(-1)
            for key in (self.tensor_keys.reward, self.tensor_keys.terminated)
        )
        steps = entries.get(self.tensor_keys.steps_to_next_obs)
        gamma = self.gamma if steps is None else self.gamma ** steps.reshape(-1)
        return reward + gamma * next_value * ~terminated

    def _called_with(
        self,
        network: Any,
        entries: Entries,
        at: KeyOf = this_key,
        given: Entries = MappingProxyType({}),
        detached: bool = False,
    ) -> tuple[list[Tensor], dict[str, Any]]:
        """Return a network's inputs, of ``given`` or the batch, and its features by keyword."""
        if not self._trunks:
            return [given[k] if k in given else entries[at(k)] for k in network.in_keys], {}
        trunk = network.trunk
        keys = [key for key in network.in_keys if key not in trunk.in_keys]
        inputs = [given[key] if key in given else entries[at(key)] for key in keys]
        return inputs, {"features": self._remembered(trunk, entries, at, detached)}

    def _remembered(
        self, trunk: MemoryTrunk, entries: Entries, at: KeyOf = this_key, detached: bool = False
    ) -> Tensor:
        """Return the features of a memory, or of a target's."""
        is_own = any(trunk is own for own in self._trunks)
        features = entries[at(_features(_OWN if is_own else _TARGET, trunk))]
        return features.detach() if detached else features

    def _output(
        self,
        network: Any,
        entries: Entries,
        key: NestedKey,
        at: KeyOf = this_key,
        given: Entries = MappingProxyType({}),
        frozen: bool = False,
    ) -> Tensor:
        """Return what a network writes as ``key``; with ``frozen``, see `evaluate_frozen`."""
        inputs, known = self._called_with(network, entries, at, given, detached=frozen)
        evaluated = evaluate_frozen if frozen else evaluate
        return evaluated(network, inputs, key, self._batch_dims, **known)

    def _reduce(self, loss: Tensor, entries: Entries) -> Tensor:
        """Return the mean loss, by the weights of prioritized replay if there are any."""
        weights = entries.get(self.tensor_keys.priority_weight)
        if weights is None:
            return loss.mean()
        weights = weights.reshape(-1)
        return torch.dot(loss, weights) / weights.sum()

    def _write(self, out: dict[str, Tensor], tensordict: TensorDictBase) -> None:
        errors = out.pop("td_error")
        if self._trunks:  # one for each sequence
            by_sequence = errors.reshape(tensordict.shape[0], -1)
            errors = _MAX_SHARE * by_sequence.amax(1) + (1 - _MAX_SHARE) * by_sequence.mean(1)
        priority = errors.reshape(*tensordict.shape, *self._error_dims)
        tensordict.set(self.tensor_keys.priority, priority)


def _features(of: str, trunk: MemoryTrunk) -> NestedKey:
    """Return the key of the features of a memory, or of its target."""
    return ("features", of, *map(str, trunk.hidden_keys))


def _rows(value: Tensor, burn_in: int, time: int) -> Tensor:
    """Flatten ``[sequences, time, ...]``, or one number a sequence, to rows without ``burn_in``."""
    if value.ndim == 1:
        return value.repeat_interleave(time)
    return value[:, burn_in:].flatten(0, 1)


def _unroll(
    trunk: MemoryTrunk, inputs: Sequence[Tensor], burn_in: int
) -> tuple[Tensor, list[Tensor]]:
    """Return the features of each step after ``burn_in``, and the states after it, as rows."""
    number = len(trunk.in_keys) - len(trunk.hidden_keys)
    seen, states = list(inputs[:number]), list(inputs[number:])
    if burn_in:
        with torch.no_grad():
            _, warm = trunk.remember(*(value[:, :burn_in] for value in seen), *states)
        seen = [value[:, burn_in:] for value in seen]
        states = [state[:, -1:] for state in warm.values()]
    features, after = trunk.remember(*seen, *states)
    return features.flatten(0, 1), [state.flatten(0, 1) for state in after.values()]


def _advance(trunk: MemoryTrunk, observed: Sequence[Tensor], states: Sequence[Tensor]) -> Tensor:
    """Return the features of the observations that follow these states in their episode."""
    is_init = torch.zeros(len(observed[0]), 1, dtype=torch.bool, device=observed[0].device)
    return trunk(*observed, is_init, *states)
