"""`ForeignWorld`: the base class of the adapters."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from operator import getitem
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tensordict import NestedKey, TensorDictBase, unravel_key

from ....base.space_parts import leaves_of
from ....errors import ConfigError
from ....store.rng import seed_of
from ..tensor_world import TensorWorld


def leaf_getter(space: spaces.Space[Any]) -> Callable[[Any], dict[NestedKey, Any]]:
    """Return a function that finds the leaves of a nested observation by their keys."""
    paths = [(unravel_key(leaf.key), leaf.path) for leaf in leaves_of(space)]
    return lambda observed: {key: reduce(getitem, path, observed) for key, path in paths}


def unbounded(observed: Any, batch_dims: int = 0) -> spaces.Space[Any]:
    """The space of nested observations of unknown bounds; those of images are 0 and 255."""
    if isinstance(observed, TensorDictBase | Mapping):
        return spaces.Dict({key: unbounded(part, batch_dims) for key, part in observed.items()})
    shape = tuple(observed.shape[batch_dims:])
    if "uint8" in str(observed.dtype):
        return spaces.Box(0, 255, shape, np.uint8)
    return spaces.Box(-np.inf, np.inf, shape)


def gymnasium_space(space: Any, name: str) -> spaces.Space[Any]:
    """The Gymnasium space of a space of another library, such as gymnax or gym."""
    if hasattr(space, "n"):
        return spaces.Discrete(int(space.n))
    if hasattr(space, "nvec"):
        return spaces.MultiDiscrete(space.nvec)
    if isinstance(inner := getattr(space, "spaces", None), Mapping):
        return spaces.Dict({key: gymnasium_space(part, name) for key, part in inner.items()})
    if hasattr(space, "low"):
        dtype: Any = np.dtype(space.dtype)
        low, high = (np.broadcast_to(np.asarray(x), space.shape) for x in (space.low, space.high))
        if dtype.kind == "f":  # the largest number there is stands for no bound
            far = np.finfo(np.float32).max
            low = np.where(low <= -far, -np.inf, low)
            high = np.where(high >= far, np.inf, high)
            dtype = np.dtype(np.float32)
        return spaces.Box(low.astype(dtype), high.astype(dtype), tuple(space.shape), dtype)
    raise ConfigError(
        f"{name} has a space {type(space).__name__}: Discrete, MultiDiscrete, Box and Dict are "
        "taken."
    )


class ForeignWorld(TensorWorld):
    """A simulator whose state cannot be saved, as a `TensorWorld`.

    Its running episodes are lost when a run is resumed. The next ones are seeded from the run's
    seed and the number of resumes, so that no episode repeats.
    """

    shares = False
    frame_skip = 1

    def __init__(
        self,
        name: str,
        num_envs: int,
        device: torch.device | str,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lost: str,
    ) -> None:
        self.name = name
        self.num_envs = num_envs
        self.device = torch.device(device)
        self.observation_space = observation_space
        self.action_space = action_space
        self.lost = lost
        self.episodes = [-1] * num_envs
        self._seed = self._resumed = 0
        self._entries = leaf_getter(observation_space)

    @abstractmethod
    def _start_over(self, seed: int) -> None:
        """Seed the simulator; a reset follows."""

    def seed(self, seed: int) -> None:
        self._seed, self._resumed = seed, 0
        self._start_over(seed)

    def state_dict(self) -> dict[str, Any]:
        return {"resumed": self._resumed + 1}

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        self._resumed = int(state["resumed"])
        self._start_over(seed_of((self._seed, self._resumed)) >> 1)  # simulators take 31 bits
        return False


def find(env: Any, name: str) -> Any:
    """An attribute of an environment or of the one it wraps; ``None`` if there is none."""
    value = getattr(env, name, None)
    return value if value is not None else getattr(getattr(env, "unwrapped", None), name, None)


def name_of(env: Any) -> str:
    """The id or the class name of an environment."""
    spec = find(env, "spec")
    return str(getattr(spec, "id", None) or type(getattr(env, "unwrapped", env)).__name__)


def numbers_in(
    infos: Any, num_envs: int, device: torch.device, group: str = ""
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the loggable numbers of an info dict: names joined by ``/``, and tensors.

    A number is a scalar or ``[num_envs]``. Other shapes, and names that start with ``_``
    (Gymnasium's masks), are left out. No tensor is read.
    """
    for key, value in infos.items() if isinstance(infos, Mapping | TensorDictBase) else ():
        name = str(key).strip("/")
        if name.startswith("_"):
            continue
        name = f"{group}/{name}" if group else name
        if isinstance(value, (bool, int, float)):
            yield name, torch.full((), float(value), device=device)
        elif isinstance(value, torch.Tensor):
            if value.numel() == 1 and num_envs != 1:
                yield name, value.reshape(())
            elif value.shape in ((), (num_envs,), (num_envs, 1)) and not value.is_complex():
                yield name, value.reshape(-1)[:num_envs] if value.ndim else value
        else:
            yield from numbers_in(value, num_envs, device, name)
