"""The form in which a policy writes actions and the environments take them; random actions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from tensordict import NestedKey
from torch.utils._pytree import tree_structure, tree_unflatten

from ..base.space_parts import DTYPES, MASK, Path, parts_of
from ..errors import ConfigError
from .buffers import Inputs
from .random_streams import stream_keys, uniforms
from .spaces import Array

_ACTIONS = 1  # purpose of the random streams


class ActionFormat:
    """The format of the actions of a Discrete, MultiDiscrete, MultiBinary or Box space.

    Args:
        space: The action space of one environment.
        categorical: Whether discrete actions are indices (int64), or one-hot vectors; of a
            MultiDiscrete space the one-hot vectors are concatenated.
        clip: Whether the environments get continuous actions clipped to their bounds.

    Attributes:
        keys: Those of the actions in a batch.
        shape: Shape of one environment's action as the policy writes it.
        dtype: Its type, for actions that are drawn at random.
        mask_size: Size of an action mask; 0 where there is nothing to choose from. The masks of a
            MultiDiscrete space are concatenated; that of a MultiBinary space marks the entries that
            may be 1.
        numbers: Random numbers from which an action is drawn.

    Raises:
        ConfigError: If the space is of another kind.
    """

    keys: tuple[NestedKey, ...] = ("action",)
    is_index = is_one_hot = clips = _is_discrete = False
    start: Any = None

    def __init__(
        self, space: spaces.Space[Any], categorical: bool = True, clip: bool = False
    ) -> None:
        self.space = space
        self.clips = clip and isinstance(space, spaces.Box)
        self.shape: tuple[int, ...] = tuple(space.shape or ())
        self.dtype: np.dtype[Any] = np.dtype(np.int64)
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
        self.numbers = len(sizes) or math.prod(self.shape)
        self._bounds: dict[torch.device, tuple[torch.Tensor, torch.Tensor]] = {}

    def find(self, outputs: Mapping[NestedKey, Any]) -> Any:
        """The actions among a policy's outputs, or among the entries of a batch."""
        return outputs["action"]

    def check(self, actions: Any, num_envs: int) -> None:
        """Raise a `ConfigError` if the policy's actions have another shape or type."""
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
        if self.clips:
            actions = np.clip(actions, self.space.low, self.space.high)  # type: ignore[attr-defined]
        if self.start is not None:
            return np.asarray(actions + self.start)
        return np.array(actions, dtype=self.space.dtype)

    def each(self, actions: Any) -> list[Any]:
        """The same, one for each environment: Python integers where the space is Discrete."""
        array = self.to_env(actions)
        return array.tolist() if self.is_index else list(array)

    def leaves_nothing(self, mask: Array) -> Array:
        """Where a mask ``[..., mask_size]`` allows none of the actions of a choice, ``[...]``."""
        nothing = np.zeros(mask.shape[:-1], bool)
        if self._is_discrete:
            for choice in np.split(mask, self._choices, axis=-1):
                nothing |= ~choice.any(-1)
        return nothing

    def bounds(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Those of a Box, float32, on a device; made once, since later steps must not wait."""
        if device not in self._bounds:
            space: Any = self.space
            low, high = (np.asarray(bound, np.float32) for bound in (space.low, space.high))
            self._bounds[device] = (
                torch.from_numpy(low).to(device),
                torch.from_numpy(high).to(device),
            )
        return self._bounds[device]

    def sample(
        self, uniform: torch.Tensor, observation: Mapping[NestedKey, torch.Tensor]
    ) -> dict[NestedKey, torch.Tensor]:
        """Random actions, as a policy's outputs.

        Args:
            uniform: Random numbers in [0, 1), ``[num_envs, numbers]``.
            observation: Holds the masks, if there are any.
        """
        return {"action": self.draw(uniform, observation.get(MASK) if self.mask_size else None)}

    def draw(self, uniform: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Sample actions uniformly among those allowed.

        As in Gymnasium, a number without bounds is normal, one with a single bound exponential.

        Args:
            uniform: Random numbers in [0, 1), ``[num_envs, numbers]``.
            mask: bool ``[num_envs, mask_size]``; ``None`` allows everything.
        """
        if isinstance(self.space, spaces.Box):
            return self._draw_continuous(uniform.view(-1, *self.shape))
        if not self._is_discrete:
            bits = uniform < 0.5
            return (bits if mask is None else bits & mask).view(-1, *self.shape).to(torch.int8)
        masks = [None] * len(self.sizes) if mask is None else torch.split(mask, self.sizes, -1)
        chosen = []
        for number, size, allowed in zip(uniform.unbind(-1), self.sizes, masks, strict=True):
            if allowed is None:
                chosen.append((number.double() * size).long())
                continue
            place = allowed.cumsum(-1)  # of each choice among those allowed, from 1
            wanted = (number.double().unsqueeze(-1) * place[:, -1:]).floor()
            chosen.append((place > wanted).long().argmax(-1))
        if self.is_one_hot:
            pairs = zip(chosen, self.sizes, strict=True)
            return torch.cat([_one_hot(index, size) for index, size in pairs], -1)
        return torch.stack(chosen, -1).view(-1, *self.shape)

    def _draw_continuous(self, uniform: torch.Tensor) -> torch.Tensor:
        low, high = self.bounds(uniform.device)
        if self.dtype.kind in "iu":
            drawn = (low + (high - low + 1) * uniform).floor().minimum(high)
            return drawn.to(torch.from_numpy(np.zeros((), self.dtype)).dtype)
        normal = torch.special.ndtri(uniform.clamp(2.0**-25))  # keeps the lowest value finite
        far = -torch.log1p(-uniform)
        from_high = torch.where(high.isfinite(), high - far, normal)
        unbounded = torch.where(low.isfinite(), low + far, from_high)
        is_bounded = low.isfinite() & high.isfinite()
        width = high - low  # infinite for bounds that are all but infinite
        wide = low * (1 - uniform) + high * uniform
        bounded = torch.where(width.isfinite(), low + width * uniform, wide)
        return torch.where(is_bounded, bounded, unbounded)


class JointActionFormat(ActionFormat):
    """The format of a Dict or Tuple of actions: one vector, the concatenation of its parts.

    The vector is int64 if all parts are, else float32, which holds every index exactly. The masks
    of the discrete parts are concatenated as well.
    """

    def __init__(self, space: spaces.Space[Any], clip: bool) -> None:
        self.space = space
        self._batched = gym.vector.utils.batch_space(space)  # copies the space: once, not per step
        # By path the format of a part, its place in the vector, and that of its mask.
        self._parts: list[tuple[Path, ActionFormat, slice, slice]] = []
        self._form = tree_structure(gym.vector.utils.create_empty_array(space))
        width = self.mask_size = 0
        for path, part_space in parts_of(space):
            part = ActionFormat(part_space, clip=clip)
            place = slice(width, width := width + math.prod(part.shape))
            mask = slice(self.mask_size, self.mask_size + part.mask_size)
            self.mask_size = mask.stop
            self._parts.append((path, part, place, mask))
        self.shape = (width,)
        self.numbers = sum(part.numbers for _, part, _, _ in self._parts)
        kinds = {part.dtype for _, part, _, _ in self._parts}
        self.dtype = np.dtype(np.int64 if kinds == {np.dtype(np.int64)} else np.float32)

    def to_env(self, actions: Array) -> Any:
        parts = [part.to_env(_as(actions[:, place], part)) for _, part, place, _ in self._parts]
        return tree_unflatten(parts, self._form)

    def each(self, actions: Array) -> list[Any]:
        return list(gym.vector.utils.iterate(self._batched, self.to_env(actions)))

    def leaves_nothing(self, mask: Array) -> Array:
        nothing = [part.leaves_nothing(mask[..., own]) for _, part, _, own in self._parts]
        return np.logical_or.reduce(nothing)

    def draw(self, uniform: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        drawn, start = [], 0
        for _, part, _, own in self._parts:
            numbers = uniform[:, start : (start := start + part.numbers)]
            allowed = mask[:, own] if mask is not None and part.mask_size else None
            drawn.append(part.draw(numbers, allowed).reshape(len(uniform), -1))
        return torch.cat(drawn, -1).to(torch.int64 if self.dtype.kind == "i" else torch.float32)


def action_format_of(
    space: spaces.Space[Any], categorical: bool = True, clip: bool = False
) -> ActionFormat:
    """The format of the actions of a space; see `ActionFormat`."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return JointActionFormat(space, clip)
    return ActionFormat(space, categorical, clip)


class RandomActions:
    """Draws random actions, each a function of seed, environment and step alone.

    ``inputs`` are the observations of a rollout, which may hold action masks.
    """

    def __init__(
        self, action_format: ActionFormat, inputs: Inputs, num_envs: int, seed: int, first_env: int
    ) -> None:
        self._format = action_format
        self._masks = {
            key: rows
            for key, rows in inputs.items()
            if (key if isinstance(key, str) else key[-1]) == MASK
        }
        device = next(iter(inputs.values()))[0].device
        width = action_format.numbers
        self._keys = stream_keys(seed, _ACTIONS, first_env, num_envs, width, device)

    def __call__(self, t: int, step: int) -> dict[NestedKey, torch.Tensor]:
        """A policy's outputs in row ``t``, which is the environments' step ``step``."""
        masks = {key: rows[t] for key, rows in self._masks.items()}
        return self._format.sample(uniforms(self._keys, step), masks)


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
