"""The format in which a policy writes actions and the environments take them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce
from operator import getitem
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from tensordict import NestedKey
from torch.utils._pytree import tree_structure, tree_unflatten

from ..base.space_parts import DTYPES, Path, parts_of
from ..base.untrusted.array_file import check_bit_generator
from ..errors import ConfigError
from .spaces import Array


class ActionFormat:
    """The format of one action, or of several of a kind: Discrete, MultiDiscrete, MultiBinary, Box.

    Args:
        space: The action space of one environment.
        categorical: Whether discrete actions are indices (int64), or one-hot vectors; of a
            MultiDiscrete space the one-hot vectors stand one after another.

    Attributes:
        shape: Shape of one environment's action as the policy writes it.
        dtype: Its type, for actions that are drawn at random.
        mask_size: Size of an action mask; 0 where there is nothing to choose from. The masks of a
            MultiDiscrete space are concatenated; that of a MultiBinary space marks the entries that
            may be 1.

    Raises:
        ConfigError: If the space is of another kind.
    """

    keys: tuple[NestedKey, ...] = ("action",)
    is_index = is_one_hot = _is_discrete = False

    def __init__(self, space: spaces.Space[Any], categorical: bool = True) -> None:
        self.space = space
        self.shape: tuple[int, ...] = tuple(space.shape or ())
        self.dtype: np.dtype[Any] = np.dtype(np.int64)
        self.start: Any = None
        sizes: list[int] = []  # of the one-hot vectors, or of the masks
        if isinstance(space, spaces.Discrete):
            self.start = int(space.start) or None
            sizes = [int(space.n)]
        elif isinstance(space, spaces.MultiDiscrete) and (categorical or space.nvec.ndim == 1):
            self.start = np.asarray(space.start) if np.any(space.start) else None
            sizes = space.nvec.ravel().tolist()
        elif isinstance(space, spaces.Box | spaces.MultiBinary):
            self.dtype = DTYPES.get(np.dtype(space.dtype), np.dtype(space.dtype))
        else:
            raise ConfigError(
                f"The action space {space} has no tensor form. Use Discrete, MultiDiscrete, "
                "MultiBinary, Box, or a Dict or Tuple of these, for instance with "
                "gymnasium.wrappers.TransformAction; one-hot vectors need MultiDiscrete of one "
                "dimension."
            )
        self.is_index = isinstance(space, spaces.Discrete)
        self._is_discrete = bool(sizes)
        self.mask_size = sum(sizes)
        if isinstance(space, spaces.MultiBinary):
            self.mask_size = math.prod(self.shape)
        self._choices = np.cumsum(sizes)[:-1]
        self.is_one_hot = self._is_discrete and not categorical
        if self.is_one_hot:
            self.shape = (sum(sizes),)
        self.sizes = sizes  # of the discrete choices

    def find(self, outputs: Mapping[NestedKey, Any]) -> Any:
        return outputs["action"]

    def check(self, actions: Array | torch.Tensor, num_envs: int) -> None:
        """Raise a `ConfigError` if ``actions`` cannot be what the policy means to do."""
        expected = (num_envs, *self.shape)
        takes_indices = self._is_discrete and not self.is_one_hot
        if actions.shape != expected or (takes_indices and "int" not in str(actions.dtype)):
            form = "indices " if takes_indices else ""
            other = "one-hot vectors" if takes_indices else "indices"
            hint = f" For {other} pass categorical_actions={self.is_one_hot}."
            raise ConfigError(
                f"The policy's action is {actions.dtype} {list(actions.shape)}; {self.space} with "
                f"{num_envs} environments needs {form}{list(expected)}."
                f"{hint if self._is_discrete else ''}"
            )

    def to_env(self, actions: Array) -> Any:
        """The policy's actions, ``[num_envs, *shape]``, as a vector environment takes them.

        The array is the environments' own: nothing writes to it later.
        """
        if self.is_one_hot:
            parts = np.split(actions, self._choices, axis=-1)
            indices = np.stack([part.argmax(-1) for part in parts], axis=-1)
            actions = indices[..., 0] if self.is_index else indices
        if self.start is not None:
            return np.asarray(actions + self.start)
        return np.array(actions, dtype=self.space.dtype)

    def each(self, actions: Array) -> list[Any]:
        """The same, one for each environment: Python integers where the space is Discrete."""
        array = self.to_env(actions)
        return array.tolist() if self.is_index else list(array)

    def from_env(self, actions: Any) -> Array:
        """The inverse of `to_env`."""
        if self.start is not None:
            actions = actions - self.start
        if self.is_one_hot:
            columns = actions[:, None] if self.is_index else actions
            vectors = [
                np.eye(size, dtype=np.int64)[columns[:, i]] for i, size in enumerate(self.sizes)
            ]
            return np.concatenate(vectors, axis=-1)
        return actions.astype(self.dtype, copy=False)

    def leaves_nothing(self, mask: Array) -> Array:
        """Where a mask ``[..., mask_size]`` allows none of the actions of a choice, ``[...]``."""
        nothing = np.zeros(mask.shape[:-1], bool)
        if self._is_discrete:
            for choice in np.split(mask, self._choices, axis=-1):
                nothing |= ~choice.any(-1)
        return nothing

    def draw(self, uniform: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Discrete actions or bits, uniform among those allowed.

        Args:
            uniform: Random numbers in [0, 1), ``[num_envs, mask_size]``.
            mask: bool ``[num_envs, mask_size]``; ``None`` allows everything.
        """
        if not self._is_discrete:
            bits = uniform < 0.5
            return (bits if mask is None else bits & mask).view(-1, *self.shape).to(torch.int8)
        # The largest of independent uniform numbers is equally likely to be any of the allowed.
        scores = uniform if mask is None else uniform.masked_fill(~mask, -1.0)
        chosen = [part.argmax(-1) for part in torch.split(scores, self.sizes, -1)]
        if self.is_one_hot:
            pairs = zip(chosen, self.sizes, strict=True)
            return torch.cat([_one_hot(index, size) for index, size in pairs], -1)
        return torch.stack(chosen, -1).view(-1, *self.shape)

    def sample(self, generator: np.random.Generator, mask: Array) -> torch.Tensor:
        """Draw with a generator of NumPy's."""
        return self.draw(torch.from_numpy(generator.random(mask.shape)), torch.from_numpy(mask))


class JointActionFormat(ActionFormat):
    """The format of a Dict or Tuple of actions: one vector, in which its parts stand side by side.

    The vector is int64 if all parts are, else float32, which holds every index exactly. The masks
    of the discrete parts stand side by side as well.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space = space
        # By path the format of a part, its place in the vector, and that of its mask.
        self._parts: list[tuple[Path, ActionFormat, slice, slice]] = []
        self._form = tree_structure(gym.vector.utils.create_empty_array(space))
        width = self.mask_size = 0
        for path, part_space in parts_of(space):
            part = ActionFormat(part_space)
            place = slice(width, width := width + math.prod(part.shape))
            mask = slice(self.mask_size, self.mask_size + part.mask_size)
            self.mask_size = mask.stop
            self._parts.append((path, part, place, mask))
        self.shape = (width,)
        kinds = {part.dtype for _, part, _, _ in self._parts}
        self.dtype = np.dtype(np.int64 if kinds == {np.dtype(np.int64)} else np.float32)

    def to_env(self, actions: Array) -> Any:
        parts = [part.to_env(_as(actions[:, place], part)) for _, part, place, _ in self._parts]
        return tree_unflatten(parts, self._form)

    def each(self, actions: Array) -> list[Any]:
        batch = gym.vector.utils.batch_space(self.space)
        return list(gym.vector.utils.iterate(batch, self.to_env(actions)))

    def from_env(self, actions: Any) -> Array:
        found = [
            part.from_env(np.asarray(reduce(getitem, path, actions)))
            for path, part, _, _ in self._parts
        ]
        return np.concatenate([part.reshape(len(part), -1) for part in found], -1, dtype=self.dtype)

    def leaves_nothing(self, mask: Array) -> Array:
        nothing = [part.leaves_nothing(mask[..., own]) for _, part, _, own in self._parts]
        return np.logical_or.reduce(nothing)

    def sample(self, generator: np.random.Generator, mask: Array) -> torch.Tensor:
        parts = []
        for _, part, _, own in self._parts:
            if part.mask_size:
                drawn = part.sample(generator, mask[:, own])
            else:
                box = gym.vector.utils.batch_space(part.space, len(mask))
                box.seed(int(generator.integers(2**31)))
                drawn = torch.from_numpy(part.from_env(box.sample()))
            parts.append(drawn.reshape(len(mask), -1))
        return torch.cat(parts, -1)


def action_format_of(space: spaces.Space[Any], categorical: bool = True) -> ActionFormat:
    """The format of the actions of a space."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return JointActionFormat(space)
    return ActionFormat(space, categorical)


class Sampler:
    """Draws random actions, of which a mask may allow only some; this one has no state."""

    def __call__(self, t: int, step: int) -> Mapping[NestedKey, Any]:
        """A policy's outputs in row ``t``, which is the environments' step ``step``."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


class RandomActions(Sampler):
    """A `Sampler` of actions for all environments at once, with generators of its own."""

    def __init__(
        self,
        action_format: ActionFormat,
        num_envs: int,
        seed: int,
        masks: Any = None,
    ) -> None:
        self._format = action_format
        self._space = gym.vector.utils.batch_space(action_format.space, num_envs)
        self._masks = masks
        self._space.seed(seed)
        self._generators = [part.np_random for _, part in parts_of(self._space)]

    def __call__(self, t: int, step: int) -> dict[NestedKey, Any]:
        if self._masks is None:
            return {"action": self._format.from_env(self._space.sample())}
        return {"action": self._format.sample(self._generators[0], self._masks[t])}

    def state_dict(self) -> dict[str, Any]:
        return {"generators": [each.bit_generator.state for each in self._generators]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for saved, own in zip(state_dict["generators"], self._generators, strict=True):
            own.bit_generator.state = check_bit_generator(saved)


def _one_hot(index: torch.Tensor, size: int) -> torch.Tensor:
    return (index.unsqueeze(-1) == torch.arange(size, device=index.device)).long()


def _as(columns: Array, part: ActionFormat) -> Array:
    shaped = columns.reshape(len(columns), *part.shape)
    # Rounded: an index that was a float on its way may have become 1.9999999.
    return np.rint(shaped).astype(part.dtype) if part.dtype.kind in "iu" else shaped


class ClipParts(gym.ActionWrapper[Any, Any, Any], RecordConstructorArgs):
    """Clips every Box in a Dict or Tuple of actions to its bounds."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)

    def action(self, action: Any) -> Any:
        """The action with all its continuous parts within their bounds."""
        return _clip(self.env.action_space, action)


def clipped(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """An environment that clips continuous actions, or parts of them, to their bounds."""
    if isinstance(env.action_space, spaces.Box):
        return gym.wrappers.ClipAction(env)
    return ClipParts(env)


def clips(layer: Any) -> bool:
    """Whether a wrapper is one of these."""
    return isinstance(layer, gym.wrappers.ClipAction | ClipParts)


def _clip(space: spaces.Space[Any], action: Any) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _clip(part, action[key]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_clip(part, each) for part, each in zip(space.spaces, action, strict=True))
    return np.clip(action, space.low, space.high) if isinstance(space, spaces.Box) else action
