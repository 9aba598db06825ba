"""`WorldRolloutInCompany`: a rollout of a tensor world that is made together with others."""

from __future__ import annotations

from typing import Any, cast

import torch
from tensordict import TensorDict
from tensordict.nn.probabilistic import interaction_type

from ...graphs.compiling import CannotCompileError
from ...graphs.random_calls import NotedDraws, RandomCall
from ...loop.company import Company, Server
from ...loop.timing import Timing
from ...networks import Policy
from ..actors import FunctionActor, learn_outputs
from .functional_world import FunctionalWorld
from .larger_world import are_alike, why_not_larger
from .policies_together import why_not_asked_together
from .world_actions import WorldActions
from .world_buffers import WorldBuffers
from .world_rollout import WorldRollout


class WorldRolloutInCompany(WorldRollout):
    """A `WorldRollout` that is made together with those of other loops.

    Where it stands stays its own: that is saved and restored as if it were alone. With random
    actions, and where it cannot be made with others, it is made alone.

    Args:
        *args: As for `WorldRollout`.
        company: The other loops.
        server: What makes the rollouts of all.
        **kwargs: As for `WorldRollout`.

    Attributes:
        company: The other loops.
        draws: What its policy draws in a step, once that is known.
        exploration: How its policy is sampled.
        kind: Whom it is like, as the server has found out; ``None`` once that may have changed.
    """

    def __init__(self, *args: Any, company: Company, server: Server, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.company = company
        self.draws: list[RandomCall] = []
        self.exploration = interaction_type()
        self.kind: Any = None
        self._server: Server | None = server
        self._is_known = False  # what the policy draws and returns

    @property
    def world(self) -> FunctionalWorld:
        """The environments."""
        return cast(FunctionalWorld, self._world)

    @property
    def policy(self) -> Policy:
        """What acts."""
        return cast(Policy, self._policy)

    @property
    def horizon(self) -> int:
        """Steps of a rollout."""
        return self._horizon

    @property
    def buffers(self) -> WorldBuffers:
        """Where it is written when it is made alone."""
        return self._buffers

    @property
    def actions(self) -> WorldActions:
        """How actions get to the world."""
        return self._actions

    @property
    def compiles(self) -> bool:
        """Whether several steps are one graph."""
        return self._compiled is not None

    @property
    def outputs(self) -> dict[Any, torch.Tensor]:
        """What the policy returns in one step, ``[1, num_envs, ...]``."""
        return cast(FunctionActor, self._actor).rows(slice(0, 1))

    @property
    def sums(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Rewards and steps of the running episodes, ``[num_envs]`` each."""
        return self._returns, self._lengths

    def is_like(self, other: WorldRolloutInCompany) -> bool:
        """Whether another one can be made together with this one."""
        return (
            self._horizon == other._horizon
            and self.exploration == other.exploration
            and self._actions.options == other._actions.options
            and are_alike(self.world, other.world)
            and self.policy.in_keys == other.policy.in_keys
            and self.policy.out_keys == other.policy.out_keys
            and repr(self.policy) == repr(other.policy)
        )

    def abandon(self) -> None:
        """The next batch begins with new episodes."""
        super().abandon()
        self.kind = None

    def _made(self, timing: Timing, warm_up: bool) -> TensorDict:
        if warm_up or self._server is None or not self._is_ready():
            return super()._made(timing, warm_up)
        if self.exploration != interaction_type():
            self.exploration, self.kind = interaction_type(), None
        self.log = {}
        batch: TensorDict
        batch, seconds = self.company.ask(self._server, self)
        timing.add("collect/env", seconds)
        return batch

    def _is_ready(self) -> bool:
        """Whether it can be made together with others; if not, the reason is said."""
        if self._is_known:
            return True
        why = self._against()
        if why is None:
            try:
                with NotedDraws() as noted:
                    learn_outputs(self._actor, self._policy_device)
                self.draws, self._is_known = noted.draws, True
            except CannotCompileError as error:
                why = str(error)
        if why is not None:
            self._server = None
            self.company.say(f"each seed steps {self._world.name} by itself, since {why}.")
        return self._is_known

    def _against(self) -> str | None:
        device = self._world.device
        if device.type != "cpu" or self._moves:
            return f"it is on {device}, where nobody has compared the bits"
        if self._buffers.info:
            return "numbers of its log are asked for"
        return why_not_larger(self._world) or why_not_asked_together(self._policy)
