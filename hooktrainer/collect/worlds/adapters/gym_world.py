"""`GymWorld`: a Gymnasium vector environment whose steps return tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch

from ....errors import ConfigError
from ...batched_env import autoreset_mode_of
from ..functional_world import select
from ..tensor_world import Observations, Outcome
from .foreign_world import ForeignWorld, find, name_of, numbers_in

_FINAL_OBSERVATIONS: Final = ("final_obs", "final_observation")


class GymWorld(ForeignWorld):
    """A Gymnasium vector environment whose steps return tensors, as a `TensorWorld`.

    For example ManiSkill's ``ManiSkillVectorEnv``, Isaac Lab's environments from
    ``gymnasium.make``, and every ``VectorEnv`` with a ``device`` and SAME_STEP autoreset.
    ``final_obs`` (formerly ``final_observation``) is the true final observation; Isaac Lab's
    environments have none.

    Its log is the numbers in ``info``: those of ``info["log"]`` by their own names, those of
    ``info["episode"]`` only for episodes that ended, and for these the numbers of ``final_info``.

    Args:
        env: The environment.
        device: Device of its tensors; by default its own ``device``.
        hides_final: Whether final observations are never returned; by default true for Isaac Lab's.

    Raises:
        ConfigError: If an attribute is missing, or it has another autoreset mode.
    """

    def __init__(
        self, env: Any, device: torch.device | str | None = None, hides_final: bool | None = None
    ) -> None:
        name = name_of(env)
        place = find(env, "device") if device is None else device
        if place is None:
            raise ConfigError(
                f"{name} has no device, so its steps return NumPy arrays: give it to "
                "VectorCollector, or pass device= to GymWorld if they are tensors."
            )
        hides = _check_same_step(env, name)
        self._env = env
        self.simulator = getattr(env, "unwrapped", env)
        self._hides_final = hides if hides_final is None else hides_final
        self._seeds: int | None = None
        super().__init__(
            name,
            int(find(env, "num_envs")),
            place,
            find(env, "single_observation_space"),
            find(env, "single_action_space"),
            lost="Gymnasium has no call that saves an environment, its random numbers included",
        )

    def _start_over(self, seed: int) -> None:
        self._seeds = seed

    def reset(self) -> Observations:
        seed, self._seeds = self._seeds, None
        observed, _ = self._env.reset(seed=seed)
        return self._entries(observed)

    def step(self, actions: torch.Tensor) -> Outcome:
        observed, reward, terminated, truncated, info = self._env.step(actions)
        done = terminated | truncated
        following = self._entries(observed)
        final: Observations | None = None
        shown = next((info[key] for key in _FINAL_OBSERVATIONS if key in info), None)
        if shown is not None:
            final = select(done, self._entries(shown), following)
        elif not self._hides_final:  # no episode ended
            final = following
        return Outcome(following, reward, terminated, truncated, final, self._log(info, done))

    def close(self) -> None:
        self._env.close()

    def _log(self, info: Mapping[str, Any], done: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = {*_FINAL_OBSERVATIONS, "final_info", "log"}
        now = {key: value for key, value in info.items() if key not in hidden}
        log = dict(numbers_in(now, self.num_envs, self.device))
        last = info.get("final_info")
        for name, value in numbers_in(last, self.num_envs, self.device):
            if value.ndim and name != "log":
                rest = log.get(name, torch.full((), float("nan"), device=self.device))
                log[name] = torch.where(done, value.float(), rest.float())
        for name, value in log.items():
            if name.startswith("episode/") and value.ndim:
                log[name] = torch.where(done, value.float(), float("nan"))
        log.update(numbers_in(info.get("log"), self.num_envs, self.device))
        return log


def _check_same_step(env: Any, name: str) -> bool:
    """Refuse other autoreset modes; returns whether final observations are hidden."""
    mode = autoreset_mode_of(env)
    label = str(getattr(mode, "name", mode)).upper().replace("_", "")
    resets = getattr(env, "auto_reset", None)  # ManiSkill's
    if label == "SAMESTEP" or (mode is None and resets):
        return False
    if mode is None and resets is None and find(env, "episode_length_buf") is not None:
        return True  # Isaac Lab's
    raise ConfigError(
        f"{name} has autoreset_mode={getattr(mode, 'name', mode)} and auto_reset={resets}, and has "
        "to reset environments in the step that ends an episode: make it with "
        "metadata['autoreset_mode'] = AutoresetMode.SAME_STEP, ManiSkill's in ManiSkillVectorEnv."
    )
