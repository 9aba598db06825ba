"""`load_policy`: a saved policy as a function from observations to actions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..base.words import printable
from ..errors import CheckpointError, ConfigError, DamagedCheckpointError
from .agents_interface import AnyInterface, decode_interface
from .draws import Draw, decode_draws
from .interface import Array
from .policy_files import PolicyContent, read_content, read_facts
from .program import Program
from .saved import Evaluation, SavedPolicy, find_policy


def load_policy(
    saved: SavedPolicy | str | os.PathLike[str],
    *,
    deterministic: bool = True,
    seed: int | None = None,
    trust: bool = False,
) -> LoadedPolicy:
    """Load a saved policy. Needs none of the code that trained it.

    Args:
        saved: The policy: what `list_policies` lists; or its directory, such as
            ``<run>/policies/latest``, or anything else that `find_policy` understands.
        deterministic: Whether it takes the best action; else it draws one, as in training.
        seed: Seed of what it draws; by default another one each time.
        trust: Whether its environment may be made by code that it names: a script, a module.

    Raises:
        ConfigError: If it is to draw, and how it does was not saved; says why.
        CheckpointError: If there is none, or its program calls what it may not or would take more
            memory than it may; nothing in it is executed.
        DamagedCheckpointError: If its files are not what was written.

    Examples:
        >>> policy = load_policy("runs/a/policies/latest")  # doctest: +SKIP
        >>> policy(np.zeros(4, dtype="float32"))  # doctest: +SKIP
        np.int64(1)
    """
    if not isinstance(saved, SavedPolicy):
        saved = find_policy(saved)
    return LoadedPolicy(saved, deterministic=deterministic, seed=seed, trust=trust)


def _cause(sampling: Any) -> str:
    """Why it could not be said how a policy draws, without what to do about its best action."""
    return printable(str(sampling).split(": use other layers")[0])[:200]


class LoadedPolicy:
    """A policy that takes observations as its environment gives them, and returns actions for it.

    It takes the best action, the mode of the distribution or the highest value; or, if it is not to
    be deterministic, draws it from the distribution, with random numbers of its own.

    Args:
        saved: What to load.
        deterministic: As for `load_policy`.
        seed: As for `load_policy`.
        trust: As for `load_policy`.

    Attributes:
        saved: What is known of it: frames, seconds, environment, evaluation.
        interface: What it reads, and what its actions look like.
        deterministic: Whether it takes the best action.
    """

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
        self._generator = torch.Generator()
        self.seed(seed)
        self._trust = trust
        facts = read_facts(saved.path)
        content = read_content(saved.path, facts)
        try:
            self.interface: AnyInterface = decode_interface(facts.get("interface", {}))
            self._draws: list[Draw] = []
            description = content.program if deterministic else self._sampling_of(content)
            self._program = Program(description, content.weights)
            self._first = self._states_of(content)
        except (CheckpointError, ConfigError) as error:
            raise type(error)(f"{saved.path}: {printable(error)}") from None
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            reason = printable(error)[:200]
            raise DamagedCheckpointError(f"{saved.path} is damaged: {reason}") from None
        self._states: list[Tensor] = []

    def _sampling_of(self, content: PolicyContent) -> dict[str, Any]:
        """The program that draws."""
        sampling = content.program["sampling"]
        if not isinstance(sampling, dict):
            raise ConfigError(
                "it can take the best action only: how it draws was not saved "
                f"({_cause(sampling)})."
            )
        self._draws = decode_draws(sampling["draws"])
        return sampling

    def _states_of(self, content: PolicyContent) -> dict[str, Tensor]:
        """The first hidden states, after looking at what the program would take and return."""
        inputs = (content.program if self.deterministic else content.program["sampling"])["inputs"]
        given = self.interface.examples()
        names = inputs[len(given) : len(inputs) - len(self._draws)]
        states = {name: content.state[name] for name in names}
        outputs = self._program.check(
            *given,
            *(state.to("meta")[None] for state in states.values()),
            *(draw.example() for draw in self._draws),
        )
        following = self.interface.check(outputs)
        before = [((1, *state.shape), state.dtype) for state in states.values()]
        if [(tuple(state.shape), state.dtype) for state in following] != before:
            raise ValueError("its program returns other hidden states than it takes")
        return states

    @property
    def frames(self) -> int:
        """Environment frames it was trained for."""
        return self.saved.frames

    @property
    def evaluation(self) -> Evaluation | None:
        """The episodes it was played for."""
        return self.saved.evaluation

    @property
    def recurrent(self) -> bool:
        """Whether it remembers what it saw since `reset`."""
        return bool(self._first)

    @property
    def reads_state(self) -> bool:
        """Whether it is to be given the state of the whole environment, of several agents."""
        return self.interface.reads_state

    def __call__(self, observation: Any, action_mask: Any = None, state: Any = None) -> Any:
        """Return an action, or, for several agents, their actions.

        Args:
            observation: An array as the environment gives it, ``[*shape]``, or a batch of them,
                ``[batch, *shape]``; for a dict observation, a dict of such arrays. For several
                agents a dict of these by the name of the agent, as PettingZoo has it, without those
                that do not act; or a TensorDict ``[*batch]`` in TorchRL's layout, with one of its
                own for each group, ``[*batch, agents, ...]``.
            action_mask: Boolean, ``[actions]`` or ``[batch, actions]``: which actions are allowed,
                for an environment that gives it beside its observation; for several agents a dict
                of these. A TensorDict holds them itself.
            state: The state of the whole environment, ``[*shape]`` or ``[batch, *shape]``, for
                policies of several agents that read it. A TensorDict holds it itself.

        Returns:
            The action as the environment takes it, or ``[batch, ...]`` for a batch. A single
            discrete action is a NumPy integer. For several agents a dict of the actions of those
            that were given; or the TensorDict, in which ``(group, "action")`` was written, discrete
            ones counting from 0.

        Raises:
            ConfigError: If the observation is not what the policy reads.
        """
        inputs, answer = self.interface.read(observation, action_mask, state)
        if self._first and (not self._states or len(self._states[0]) != len(inputs[0])):
            self._states = [v.expand(len(inputs[0]), *v.shape) for v in self._first.values()]
        drawn = [draw.make(len(inputs[0]), self._generator) for draw in self._draws]
        outputs = self._program(*inputs, *self._states, *drawn)
        self._states = outputs[len(outputs) - len(self._first) :]
        return answer(outputs)

    def seed(self, seed: int | None) -> None:
        """Seed what it draws; ``None`` for another seed each time."""
        if seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(seed)

    def reset(self, rows: Sequence[int] | Array | None = None) -> None:
        """Forget what was seen, as at the start of an episode; does nothing without memory.

        Args:
            rows: Which of a batch: indices, or booleans ``[batch]``; all by default.
        """
        if rows is None or not self._states:
            self._states = []
            return
        index = torch.as_tensor(rows)
        self._states = [state.clone() for state in self._states]
        for state, first in zip(self._states, self._first.values(), strict=True):
            state[index] = first

    def make_env(self, **kwargs: Any) -> Any:
        """Make the environment that it was trained in; of several agents, a parallel one.

        A scenario of VMAS is made as one environment in the manner of PettingZoo's.

        Args:
            **kwargs: Further keyword arguments, such as ``render_mode="rgb_array"``.

        Raises:
            ConfigError: If it cannot be made here, or needs trust; says why.
        """
        return self.saved.environment.make(trust=self._trust, **kwargs)

    def __repr__(self) -> str:
        path, name = str(self.saved.path), self.saved.environment.name
        return f"LoadedPolicy({path!r}, {name}, {self.frames:,} frames)"
