"""The base classes of algorithms, and `algorithm`, which makes a class one."""

from __future__ import annotations

import argparse
import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Final, TypeVar

from typing_extensions import Self, dataclass_transform

from ..base.checks import check_names
from ..errors import ConfigError
from ..loop.signals import ending_cleanly
from ..networks import Memory, MemoryTrunk, NetworkFactory, memory_for
from ..run.config import Count, Needs, check_together, filled, parse_run
from ..run.recipe import mistakes_in_one_line
from ..trainer import Trainer
from .config import AlgorithmConfig, EnvConfig, Word
from .seed_runs import SeedResult, train_seeds
from .task import RunTask, Task

Kind = TypeVar("Kind", bound=type)


@dataclass(frozen=True, kw_only=True)
class Algorithm(AlgorithmConfig):
    """A run of an algorithm: its configuration, as fields.

    An algorithm derives from this, adds its own fields, and wires a trainer in `build`::

        @algorithm
        class PPO(OnPolicy):
            clip_epsilon: float = 0.2
            \"\"\"clipping range of the probability ratio around 1\"\"\"

            def build(self, task: Task) -> Trainer: ...

        PPO(env="CartPole-v1", total_frames=50_000).train()

    The same fields are its options on the command line, ``hooktrainer train ppo``, and its
    ``config.yaml``.
    """

    task_type: ClassVar[Callable[..., Any]]
    """Makes the argument of `build`, given the run and whether it has a directory."""

    def trainer(self, *, keep: bool | None = None) -> Trainer:
        """The trainer of this run, ready to train, or restored where it stopped.

        Args:
            keep: Whether the run has a directory, which is made if ``run_dir`` names none. By
                default it has one if ``run_dir`` names it; else nothing is written.
        """
        if self.seeds is not None:
            raise ConfigError(
                f"{self.name()}: seeds={self.seeds} are several runs, each with a trainer of its "
                "own: call train()."
            )
        return self.built(self.run_dir is not None if keep is None else keep)

    def built(self, keep: bool) -> Trainer:
        """Return the trainer, for one of several seeds as well."""
        check_together(self.name(), self, self.tuned_settings())
        task = self.task_type(self, keep)
        try:
            return self.build(task)
        except BaseException:
            task.release()
            raise

    def train(self, *, keep: bool | None = None) -> Trainer:
        """Train, and return the trainer.

        With ``seeds`` it returns a list of results, one for each. A type checker cannot tell:
        `train_seeds` is typed as that.

        Interrupting the kernel of a Jupyter notebook ends the run after the current batch, and this
        returns; `resumed` continues it.

        Args:
            keep: As for `trainer`.

        Raises:
            ConfigError: If a field cannot work.
        """
        if self.seeds is not None:
            return self.train_seeds(keep=keep)  # type: ignore[return-value]
        self._announce()
        trainer = self.trainer(keep=keep)
        trainer.train()
        if trainer.control.status == "interrupted":  # in a notebook; elsewhere that raises
            how = "nothing was saved, since it has no run_dir"
            if trainer.checkpoints is not None:
                place = str(trainer.checkpoints.directory.parent)
                given = "" if self.run_dir is not None else f"run_dir={place!r}"
                how = f"continue it with .resumed({given}).train() of this {type(self).__name__}"
            print(f"Interrupted at {trainer.amount}; {how}.")
        return trainer

    def resumed(self, **changes: Any) -> Self:
        """Return this run, to be continued from its latest checkpoint; it needs a ``run_dir``.

        Args:
            **changes: Fields with another value, such as a larger ``total_frames``.
        """
        return replace(self, resume="latest", fork=None, **changes)

    def train_seeds(self, *, keep: bool | None = None) -> list[SeedResult]:
        """Train every one of ``seeds``. A failure of one does not affect the others.

        Args:
            keep: As for `trainer`.

        Returns:
            The result of each run, in the order of the seeds; that of a failed run has the error.
        """
        if self.seeds is None:
            raise ConfigError(f"{self.name()}: seeds=None: pass seeds, or call train().")
        self._announce()
        return train_seeds(self, self.run_dir is not None if keep is None else keep)

    def _announce(self) -> None:
        for line in self.announcements():
            print(line)

    @classmethod
    def main(cls, words: Sequence[str] | None = None, prog: str | None = None) -> None:
        """Train with the options of the command line: the last line of a script.

        Args:
            words: The command line, without the program's name; by default this process's.
            prog: The program's name, for help and errors; by default the script's.
        """
        with ending_cleanly(), mistakes_in_one_line():
            run: Algorithm = parse(cls, sys.argv[1:] if words is None else words, prog)
            run.train_as_program()

    def train_as_program(self) -> None:
        """Train in a run directory; exit with code 1 if a seed fails."""
        if self.seeds is None:
            self.train(keep=True)
        elif any(one.error is not None for one in self.train_seeds(keep=True)):
            raise SystemExit(1)

    def build(self, task: Any) -> Trainer:
        """Make the networks, the loss and the hooks, and wire them into a trainer.

        Args:
            task: The values derived from the fields, and the parts that all algorithms share: a
                `Task` with the environment's spaces, an `AgentsTask`, or a `TextRun`.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class EnvAlgorithm(Algorithm, EnvConfig):
    """A run of an algorithm that acts in an environment, or is evaluated in one."""

    task_type: ClassVar[Callable[..., RunTask]] = Task


_THEIRS: Final = {
    "total_timesteps": "total_frames",
    "n_envs": "num_envs",
    "n_steps": "steps_per_batch",
    "train_freq": "steps_per_batch",
    "n_epochs": "num_epochs",
    "gradient_steps": "optim_steps_per_batch",
    "learning_rate": "lr",
    "learning_starts": "init_random_frames",
    "gae_lambda": "lmbda",
    "clip_range": "clip_epsilon",
    "ent_coef": "entropy_coeff",
    "vf_coef": "critic_coeff",
    "target_update_interval": "target_interval",
    "policy_kwargs": "num_cells",
    "use_sde": "sde",
}
"""Arguments of Stable-Baselines3, and the fields that do the same."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
def algorithm(kind: Kind) -> Kind:
    """Make a class an algorithm: a frozen dataclass whose defaults are tuned for its environment.

    Args:
        kind: A class that derives from `Algorithm`.
    """
    made: Any = dataclass(frozen=True, kw_only=True)(kind)
    init = made.__init__

    @functools.wraps(init)
    def __init__(self: Algorithm, **given: Any) -> None:  # noqa: N807
        known = [one.name for one in fields(made)]
        instead = {there: f"Here it is {here}" for there, here in _THEIRS.items() if here in known}
        check_names(kind.__name__, given, known, instead)
        tuned = made.tuned_settings_for(given.get(made.subject), given.get("tuned", True))
        init(self, **{**tuned, **given})

    made.__init__ = __init__
    return made


def parse(kind: type[AlgorithmConfig], words: Sequence[str], prog: str | None = None) -> Any:
    """Return the run of an algorithm that a command line describes; see `parse_run`."""
    description, default = inspect.getdoc(kind), partial(_defaults, kind)
    return parse_run(kind, words, default=default, prog=prog, description=description)


def _defaults(kind: type[AlgorithmConfig], saved: Mapping[str, Any], words: Sequence[str]) -> Any:
    """The run with the defaults for the environment, before the words are applied."""
    peek = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    peek.add_argument(f"--{kind.subject}", nargs="?")
    peek.add_argument("--tuned", action=argparse.BooleanOptionalAction)
    parsed, _ = peek.parse_known_args(list(words))
    given = {"tuned": True, **saved}
    given |= {name: value for name, value in vars(parsed).items() if value is not None}
    return filled(kind, given, kind.tuned_settings_for(given.get(kind.subject), given["tuned"]))


@dataclass(frozen=True, kw_only=True)
class WithMemory(EnvAlgorithm):
    """Fields of the algorithms whose policies may have a memory."""

    memory: Annotated[Any, Word("MEMORY")] = None
    """memory of the policy: gru, lstm or transformer; in Python also a function to a Memory"""
    memory_size: Annotated[Count, Needs("memory")] = 64
    """size of that memory"""
    memory_length: Annotated[Count, Needs("memory", ("transformer",))] = 32
    """steps that a transformer looks back"""

    def memory_of(self, features: int) -> Memory:
        """A memory of this number of features."""
        return memory_for(self.memory, features, self.memory_size, self.memory_length)

    def _networks_of(self, task: Task) -> NetworkFactory:
        """The factory of policy networks, after a memory if there is one."""
        if self.memory is None:
            return task.networks
        encoder = task.networks.encoder()
        trunk = MemoryTrunk(encoder, self.memory_of(encoder.out_features), task.in_keys)
        return task.networks.after(trunk, trunk.out_features, trunk.in_keys)


@dataclass(frozen=True, kw_only=True)
class WithStochasticPolicy(EnvAlgorithm):
    """Fields of the algorithms whose policies are distributions of actions."""

    eval_deterministic: Annotated[bool, Needs("eval_episodes")] = True
    """whether evaluations play the deterministic policy, or actions drawn from it"""


@dataclass(frozen=True, kw_only=True)
class WithStateDependentExploration(EnvAlgorithm):
    """Fields of the algorithms with state-dependent exploration."""

    sde: bool = False
    """whether noise is a function of the state, held for some steps, as in Raffin et al., 2021"""
    sde_interval: Annotated[Count | None, Needs("sde")] = 32
    """steps for which it is held, at most to the end of an episode; None for whole episodes"""
