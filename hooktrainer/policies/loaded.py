"""`load_policy`: a saved policy as a function from observations to actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..base.checks import check_seed
from ..base.words import printable
from ..errors import CheckpointError, ConfigError, DamagedCheckpointError
from .interface import Array, Interface
from .policy_files import read_content, read_facts
from .program import Program
from .saved import Evaluation, SavedPolicy


class LoadedPolicy:
    """A policy from the environment's observations to its actions.

    It takes the best action (the mode or the highest value), or samples with its own generator.

    Arguments are those of `load_policy`, which makes it.

    Attributes:
        saved: Its frames, seconds, environment and evaluation.
        interface: Its observations and actions.
        deterministic: Whether it takes the best action.
        program: What it computes.
        initial_states: Hidden states at the start of an episode, by name, without a batch.
        trained: Names of the program's weights that were trained; the others are constants.
    """

    _rng: Tensor  # the state of the generator of its samples

    def __init__(
        self,
        saved: SavedPolicy,
        *,
        deterministic: bool = True,
        seed: int | None = None,
        trust: bool = False,
    ) -> None:
        self.saved = saved
        self.deterministic = deterministic
        self.seed(seed)
        self._trust = trust
        facts = read_facts(saved.path)
        self.interface = Interface.of(saved.path, facts)
        content = read_content(saved.path, facts)
        try:
            description = content.program if deterministic else content.program["sampling"]
            if not isinstance(description, dict):
                reason = str(description).split(": use other layers")[0][:200]
                raise ConfigError(
                    f"it can take the best action only: no sampling was saved ({reason})."
                )
            self.program = Program(description, content.weights, random=not deterministic)
            self.initial_states = self._states_of(description["inputs"], content.state)
            self.trained = frozenset(content.program["parameters"])
        except (CheckpointError, ConfigError) as error:
            raise type(error)(f"{saved.path}: {printable(error)}") from None
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            reason = printable(error)[:200]
            raise DamagedCheckpointError(f"{saved.path} is damaged: {reason}") from None
        self._states: list[Tensor] = []

    def _states_of(self, inputs: list[str], first: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Check the program's memory and outputs; return the first hidden states."""
        given = self.interface.examples()
        states = {name: first[name] for name in inputs[len(given) :]}
        hidden = [state.to("meta")[None] for state in states.values()]
        following = self.interface.check(self.program.check(*given, *hidden))
        if [(v.shape, v.dtype) for v in following] != [(v.shape, v.dtype) for v in hidden]:
            raise ValueError("its program returns other hidden states than it takes")
        return states

    @property
    def frames(self) -> int:
        """Environment frames it was trained for."""
        return self.saved.frames

    @property
    def evaluation(self) -> Evaluation | None:
        """Its recorded evaluation."""
        return self.saved.evaluation

    @property
    def recurrent(self) -> bool:
        """Whether it has hidden states."""
        return bool(self.initial_states)

    def __call__(self, observation: Any, action_mask: Any = None, state: Any = None) -> Any:
        """Return an action, or the actions of several agents.

        Args:
            observation: The environment's observation ``[*shape]``, or a batch ``[batch, *shape]``.
                For several agents a dict of these by agent, as in PettingZoo, without those that
                do not act; or a TensorDict ``[*batch]`` in TorchRL's layout, with groups ``[*batch,
                agents, ...]``, which holds masks and state itself.
            action_mask: Boolean ``[actions]`` or ``[batch, actions]``, the allowed actions; for
                several agents a dict of these.
            state: The global state ``[*shape]`` or ``[batch, *shape]``, if several agents read it.

        Returns:
            The environment's action, or ``[batch, ...]``. A single discrete action is a NumPy
            integer. For several agents a dict of the given agents' actions; or the TensorDict with
            ``(group, "action")``, discrete ones counting from 0.

        Raises:
            ConfigError: If the observation does not fit.
        """
        inputs, answer = self.interface.read(observation, action_mask, state)
        return answer(self.outputs(inputs))

    def outputs(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return what its networks return, for its interface's inputs ``[batch, ...]``."""
        if self.initial_states and (not self._states or len(self._states[0]) != len(inputs[0])):
            self._states = [
                v.expand(len(inputs[0]), *v.shape) for v in self.initial_states.values()
            ]
        if self.deterministic:
            outputs = self.program(*inputs, *self._states)
        else:
            with torch.random.fork_rng([]):  # operators draw from the global generator
                torch.set_rng_state(self._rng)
                outputs = self.program(*inputs, *self._states)
                self._rng = torch.get_rng_state()
        self._states = outputs[len(outputs) - len(self.initial_states) :]
        return outputs

    def seed(self, seed: int | None) -> None:
        """Seed the samples; ``None`` for a random seed."""
        if seed is not None:
            check_seed("seed", seed)
        generator = torch.Generator()
        generator.seed() if seed is None else generator.manual_seed(seed)
        self._rng = generator.get_state()

    def reset(self, rows: Sequence[int] | Array | None = None) -> None:
        """Reset the hidden states, as at the start of an episode.

        Args:
            rows: Which of a batch: indices, or booleans ``[batch]``; all by default.
        """
        if rows is None or not self._states:
            self._states = []
            return
        index = torch.as_tensor(rows)
        if not index.numel():  # of no episode that ended
            return
        self._states = [state.clone() for state in self._states]
        for state, first in zip(self._states, self.initial_states.values(), strict=True):
            state[index] = first

    def make_env(self, **kwargs: Any) -> Any:
        """Make the environment that it was trained in; for several agents a parallel one.

        A VMAS scenario is made as one environment with PettingZoo's interface. Keyword arguments,
        such as ``render_mode="rgb_array"``, are added to its own.
        """
        return self.saved.environment.make(trust=self._trust, **kwargs)

    def __repr__(self) -> str:
        path, name = str(self.saved.path), self.saved.environment.name
        return f"LoadedPolicy({path!r}, {name}, {self.frames:,} frames)"
