"""`WorldRollout`: steps a tensor world with a policy and makes batches of the transitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import torch
from tensordict import TensorDict, unravel_key
from tqdm.auto import tqdm

from ...base.space_parts import leaves_of
from ...errors import ConfigError, StateMismatchError
from ...graphs.compiling import CannotCompileError, GraphOr
from ...loop.timing import Timing
from ..actors import Actor, FunctionActor, Policy, learn_outputs
from ..module_actor import actor_of
from ..random_actor import WarmUp
from .compiled_steps import STEPS, CompiledSteps, WorldSteps, say_eager
from .functional_world import FunctionalWorld
from .tensor_world import TensorWorld
from .world_actions import RandomWorldActor, WorldActions
from .world_buffers import BatchParts, Parts, Rows, WorldBuffers, as_batch


class WorldRollout:
    """Steps a tensor world with a policy and makes batches of the transitions.

    Nothing in it waits for the device.

    Args:
        world: The environments; it is seeded, and begins new episodes.
        policy: What `WorldCollector` takes.
        horizon: Steps of a rollout.
        actions: How actions get to the world.
        seed: The run's seed.
        first_env: Index of the first environment among all those of the run.
        policy_device: Where the policy computes.
        info_keys: What of the world's log is in batches.
        compiles: Whether several steps of world and policy are one compiled graph.

    Raises:
        ConfigError: If they can be none.
    """

    def __init__(
        self,
        world: TensorWorld,
        policy: Policy | None,
        horizon: int,
        *,
        actions: WorldActions,
        seed: int,
        first_env: int,
        policy_device: torch.device,
        info_keys: Sequence[str] = (),
        compiles: bool = False,
    ) -> None:
        num_envs, device = world.num_envs, world.device
        self._world, self._horizon, self._actions = world, horizon, actions
        self._policy = policy
        self._buffers = WorldBuffers(
            leaves_of(world.observation_space), num_envs, horizon, device, info_keys
        )
        self._random = RandomWorldActor(
            actions, self._buffers, num_envs, horizon, seed, first_env, device
        )
        self._actor: Actor = self._random
        if policy is not None:
            self._actor = actor_of(
                policy, self._buffers, actions.format, num_envs, horizon, policy_device
            )
        self._warm_up = WarmUp(self._actor, self._random)
        self._policy_device = policy_device
        self._moves = policy_device != device
        # Sums are of many small numbers: in double precision, where the device has it.
        wide = torch.float32 if device.type == "mps" else torch.float64
        self._returns = torch.zeros(num_envs, dtype=wide, device=device)
        self._lengths = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self._is_running = False
        self._parts: Callable[..., Parts] = BatchParts(self._actor, self._buffers)
        self._compiled = self._compile(policy) if compiles else None
        self._rows: list[Rows] = []  # where compiled steps are written
        self.log: dict[str, torch.Tensor] = {}

    def abandon(self) -> None:
        """The next batch begins with new episodes."""
        self._is_running = False

    def collect(self, timing: Timing, steps: int, warm_up: bool) -> TensorDict:
        """Step all environments ``horizon`` times and return the transitions.

        If it fails, the running episodes are abandoned.

        Args:
            timing: Where the time goes: ``collect/env``, ``collect/inference`` and, for putting the
                batch together, ``collect/transfer``. On a GPU that is the time to ask for the work.
            steps: How many steps each environment made before.
            warm_up: Whether random actions take the place of the policy's.
        """
        is_running, self._is_running = self._is_running, False
        buffers, self._random.steps = self._buffers, steps
        if is_running:
            buffers.carry()
        else:
            self._begin()
        if warm_up and not self._actor.is_laid_out:
            learn_outputs(self._actor, self._policy_device)
        batch = self._made(timing, warm_up)
        self._is_running = True
        return batch

    def _made(self, timing: Timing, warm_up: bool) -> TensorDict:
        """All steps of a rollout, as a batch."""
        actor: Actor | WarmUp = self._warm_up if warm_up else self._actor
        if self._compiled is None or warm_up:
            hidden = self._step(actor, timing)
        else:
            hidden = self._step_at_once(self._compiled, actor, timing)
        with timing.phase("collect/transfer"):
            parts = self._parts if actor is self._actor else BatchParts(actor, self._buffers)
            root, following, self._returns, self._lengths = parts(self._returns, self._lengths)
            return as_batch(root, following, hidden, self._world.device)

    def _begin(self) -> None:
        """Begin the next episode of every environment."""
        self._buffers.put(self._world.reset())
        self._returns.zero_()
        self._lengths.zero_()
        self._actor.begin(
            torch.ones_like(self._lengths, dtype=torch.bool, device=self._policy_device)
        )

    def _step(self, actor: Actor | WarmUp, timing: Timing) -> bool:
        """All steps of a rollout; whether the world hides final observations."""
        act = timing.traced("collect/inference", actor.act)
        step = timing.traced("collect/env", self._world.step)
        to_world, write, said = self._actions.to_world, self._buffers.write, _Said()
        inference = stepping = 0.0
        hidden = False
        now = perf_counter()
        for t in range(self._horizon):
            actions = act(t)
            acted = perf_counter()
            outcome = step(to_world(torch.as_tensor(actions)))
            done = write(t, outcome)
            actor.begin(done.to(self._policy_device) if self._moves else done)
            if outcome.log:
                said.add(outcome.log)
            hidden |= outcome.final is None
            inference += acted - now
            now = perf_counter()
            stepping += now - acted
        self.log = said.means()
        timing.add("collect/inference", inference)
        timing.add("collect/env", stepping)
        return hidden

    def _compile(self, policy: Any) -> CompiledSteps:
        """What makes several steps at once."""
        world, sample = self._world, getattr(policy, "sample", None)
        if not isinstance(world, FunctionalWorld):
            raise ConfigError(
                f"compile: {world.name} is a {type(world).__name__}, and only a FunctionalWorld "
                "can be compiled: compile the optimizer step alone, or nothing."
            )
        if not (isinstance(self._actor, FunctionActor) and callable(sample)) or self._moves:
            raise ConfigError(
                f"compile: {type(policy).__name__} carries something from step to step, has no "
                "sample(), or computes elsewhere than the world, so its steps cannot be compiled: "
                "compile the optimizer step alone, or nothing."
            )
        self._parts = GraphOr(self._parts, "the batch of a rollout", tqdm.write)
        keys = [unravel_key(key) for key in policy.in_keys]
        steps = WorldSteps(world, sample, keys, self._actions, self._buffers)
        return CompiledSteps(steps, tqdm.write)

    def _step_at_once(self, compiled: CompiledSteps, actor: Any, timing: Timing) -> bool:
        """All steps of a rollout, some in one graph; whether the world hides observations."""
        world = self._world
        assert isinstance(world, FunctionalWorld)
        if not self._actor.is_laid_out:
            learn_outputs(self._actor, self._policy_device)
        if not self._rows:
            for t in range(0, self._horizon, STEPS):
                span = slice(t, min(t + STEPS, self._horizon))
                self._rows.append(self._buffers.rows(span, actor.rows(span)))
        start = perf_counter()
        try:
            for number, rows in enumerate(self._rows):
                assert world.carry is not None
                world.carry = compiled(world.carry, rows, again=number > 0)
        except CannotCompileError as error:
            self._compiled = None
            say_eager(world, error)
            return self._step(actor, timing)
        timing.add("collect/env", perf_counter() - start)
        return False

    def state_dict(self) -> dict[str, Any]:
        """Everything the next rollout depends on, the policy's parameters aside."""
        running = None
        if self._is_running:
            running = {
                "world": self._world.state_dict(),
                "observations": self._buffers.now(),
                "returns": self._returns.clone(),
                "lengths": self._lengths.clone(),
            }
        return {"policy": self._actor.state_dict(), "running": running}

    def check(self, state_dict: Mapping[str, Any]) -> None:
        """Raise a `StateMismatchError` if the state comes from another world or policy."""
        self._actor.check(state_dict["policy"])
        if state_dict["running"] is not None:
            saved = [list(x.shape) for x in state_dict["running"]["observations"]]
            own = [list(rows[0].shape) for rows in self._buffers.inputs]
            if saved != own:
                raise StateMismatchError(
                    f"The saved observations have the shapes {saved}, those of this collector "
                    f"{own}."
                )

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> list[int]:
        """Restore what `state_dict` returned and `check` has seen."""
        self._actor.load_state_dict(state_dict["policy"])
        running = state_dict["running"]
        self._is_running = False
        if running is not None and self._world.load_state_dict(running["world"]):
            self._buffers.restore(running["observations"])
            self._returns.copy_(running["returns"])
            self._lengths.copy_(running["lengths"])
            self._is_running = True
        return []


class _Said:
    """What a world said in its log, to be averaged over the steps in which it was said."""

    def __init__(self) -> None:
        self._values: dict[str, list[torch.Tensor]] = {}

    def add(self, log: Mapping[str, torch.Tensor]) -> None:
        for name, value in log.items():
            self._values.setdefault(name, []).append(value.float().nanmean())

    def means(self) -> dict[str, torch.Tensor]:
        return {name: torch.stack(values).nanmean() for name, values in self._values.items()}
