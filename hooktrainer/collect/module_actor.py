"""A TensorDict module as the policy: exploration modules and recurrent networks included."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDict, unravel_key
from tensordict.nn import TensorDictModuleBase
from torch import nn

from ..errors import ConfigError
from .action_format import ActionFormat
from .actors import Actor, SomeEnvs
from .buffers import Inputs, OutputBuffers
from .worlds.functional_world import select

Key = tuple[str, ...]
_INIT: Key = ("is_init",)


class ModuleActor(Actor):
    """An `Actor` that calls a TensorDict module on one TensorDict that lives as long as the actor.

    The observations of a step are copied into the tensors of that TensorDict, so that nothing is
    set in it. Entries that a module keeps there, such as noise of the Ornstein-Uhlenbeck process,
    persist until its next call; so does ``"is_init"``.

    A key that the module reads as ``k`` and writes as ``("next", k)`` is a hidden state: it is
    carried to the next step and set back where an episode begins. Its first value comes from the
    ``make_tensordict_primer`` of the module that has it. ``("next", "is_init")`` is false: what
    follows a step is never the first of an episode.
    """

    def __init__(
        self,
        policy: TensorDictModuleBase,
        inputs: Inputs,
        action_format: ActionFormat,
        num_envs: int,
        horizon: int,
        device: torch.device,
    ) -> None:
        reads, writes = _as_keys(policy.in_keys), _as_keys(policy.out_keys)
        observed = _as_keys(inputs)
        hidden = [key for key in reads if ("next", *key) in writes]
        actions = _as_keys(action_format.keys)
        _check_keys(reads, writes, [*observed, *hidden, _INIT], actions)
        self._policy = policy
        self._format = action_format
        self._num_envs = num_envs
        self._observations = [(rows[0].to(device, copy=True), rows) for rows in inputs.values()]
        self._is_init = torch.ones(num_envs, 1, dtype=torch.bool, device=device)
        first = first_states(policy, hidden, device)
        self._first = {k: first[k].expand(num_envs, *first[k].shape).clone() for k in hidden}
        self._hidden = {key: value.clone() for key, value in self._first.items()}
        seen = zip(observed, (tensor for tensor, _ in self._observations), strict=True)
        given = {**dict(seen), **self._hidden, _INIT: self._is_init}
        self._data = TensorDict(given, batch_size=[num_envs], device=device)
        self._given = given.keys()
        self._following = [(tensor, ("next", *key)) for key, tensor in self._hidden.items()]
        self._recorded: list[NestedKey] = []
        self.is_laid_out = False
        self._outputs = OutputBuffers(num_envs, horizon)
        # The policy's other inputs, not observations, are recorded before it is called.
        self._carried = {unravel_key(key): tensor for key, tensor in self._hidden.items()}
        if hidden or _INIT in reads:
            self._carried["is_init"] = self._is_init
        self._carried_rows = OutputBuffers(num_envs, horizon)
        self._carried_rows.allocate(self._carried)

    def act(self, t: int, envs: slice | None = None) -> Any:
        for tensor, rows in self._observations:
            tensor.copy_(rows[t], non_blocking=True)
        self._carried_rows.write(t, self._carried)
        self._policy(self._data)
        if not self.is_laid_out:
            self._lay_out()
        outputs = {key: self._data.get(key) for key in self._recorded}
        self._outputs.write(t, outputs)
        for tensor, following in self._following:
            tensor.copy_(outputs[following])
        self._is_init.fill_(False)
        return self._format.find(outputs)

    def skip(self, t: int) -> None:
        self._carried_rows.write(t, self._carried)
        self._is_init.fill_(False)

    def begin(self, envs: SomeEnvs) -> None:
        if isinstance(envs, torch.Tensor):  # on a device that is not waited for
            envs = envs.to(self._is_init.device)
            self._is_init.logical_or_(envs.unsqueeze(-1))
            for key, tensor in self._hidden.items():
                tensor.copy_(select(envs, self._first[key], tensor))
            return
        index = list(envs)
        self._is_init[index] = True
        for key, tensor in self._hidden.items():
            tensor[index] = self._first[key][index]

    def tensors(self, blank: bool = False) -> dict[Any, torch.Tensor]:
        carried = self._carried_rows.tensors()
        if (begins := carried.get("is_init")) is not None:
            carried["next", "is_init"] = torch.zeros_like(begins)
        return {**carried, **self._outputs.tensors(blank)}

    def state_dict(self) -> dict[str, Any]:
        return {
            "is_init": self._is_init.cpu().clone(),
            "hidden": [[list(key), tensor.cpu().clone()] for key, tensor in self._hidden.items()],
            "kept": [[list(key), self._data.get(key).cpu().clone()] for key in self._private()],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for key, value in state_dict["hidden"]:
            self._hidden[tuple(key)].copy_(value)
        self._is_init.copy_(state_dict["is_init"])
        for private in self._private():
            del self._data[private]
        for key, value in state_dict["kept"]:
            self._data.set(tuple(key), value.to(self._data.device))

    def _private(self) -> list[Key]:
        keys = _as_keys(self._data.keys(True, True))
        return [key for key in keys if any(part.startswith("_") for part in key)]

    def _lay_out(self) -> None:
        found = [key for key in _as_keys(self._data.keys(True, True)) if key not in self._given]
        private = self._private()
        self._recorded = [unravel_key(key) for key in found if key not in private]
        outputs = {key: self._data.get(key) for key in self._recorded}
        self._format.check(self._format.find(outputs), self._num_envs)
        self._outputs.allocate(outputs)
        self.is_laid_out = True


def _as_keys(keys: Iterable[NestedKey]) -> list[Key]:
    return [(key,) if isinstance(key, str) else tuple(key) for key in keys]


def _check_keys(reads: list[Key], writes: list[Key], given: list[Key], actions: list[Key]) -> None:
    if missing := [key for key in reads if key not in given]:
        raise unknown_keys(missing, given)
    if [key for key in actions if key not in writes]:
        raise ConfigError(
            f"The policy writes {_names(writes)}; its out_keys have to hold {_names(actions)}."
        )
    if taken := [key for key in writes if key in given]:
        raise ConfigError(
            f"The policy writes {_names(taken)}, which the environments write too: give these "
            "out_keys another name."
        )


def _names(keys: Iterable[NestedKey]) -> list[NestedKey]:
    return [unravel_key(key) for key in keys]


def unknown_keys(missing: Iterable[NestedKey], given: Iterable[NestedKey]) -> ConfigError:
    """The error of a policy that reads unknown entries."""
    return ConfigError(
        f"The policy reads {_names(missing)}, and the environments give {_names(given)}: name its "
        "in_keys after these."
    )


def first_states(
    policy: nn.Module, hidden: Sequence[NestedKey], device: torch.device
) -> dict[NestedKey, torch.Tensor]:
    """The hidden states at the start of an episode, without a batch dimension.

    Raises:
        ConfigError: If the policy has no ``make_tensordict_primer`` for one of them.
    """
    if not hidden:
        return {}
    from torchrl.modules.utils import get_primers_from_module

    primer = get_primers_from_module(policy, warn=False)
    values = TensorDict({}, batch_size=[])
    if primer is not None:
        values = primer(values)
    if missing := [unravel_key(key) for key in hidden if values.get(key, None) is None]:
        raise ConfigError(
            f"The shape of the hidden state {missing} is unknown: the module that has it needs a "
            "method make_tensordict_primer(), as torchrl.modules.LSTMModule and GRUModule have."
        )
    return {key: values.get(key).to(device) for key in hidden}
