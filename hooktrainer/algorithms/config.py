"""The fields that every algorithm has, and those of algorithms with an environment."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Literal, get_args

import tyro
from tyro.conf import Suppress

from ..collect.families import UsualWrappers, usual_wrappers
from ..collect.make_envs import named_env
from ..collect.worlds.world_ids import original_id
from ..loop.hook import TrainerHookBase
from ..run.config import Count, FreeAmongSeeds, Needs, Number, RunConfig, hints_of
from ..run.seeds import OWN, as_seeds, words_of_seeds
from .check_spaces import Actions, Observations, name_of

Settings = Mapping[str, Mapping[str, Any]]
"""By an environment's id, or a pattern of ids, the fields that have another default there."""

Activation = Literal["tanh", "relu", "elu", "gelu", "silu", "leaky_relu"]
"""A key of `hooktrainer.networks.network_factory.ACTIVATIONS`."""

CARTPOLE = {"eval_episodes": 100, "stop_at": 475.0}
"""Settings with which a run on CartPole stops as Gymnasium counts it as solved."""

LOCOMOTION = tuple(f"{robot}-v[45]" for robot in ("Ant", "HalfCheetah", "Hopper", "Walker2d"))
"""Patterns of MuJoCo's robots that run, which have settings in common."""


def Word(metavar: str, to_text: Callable[[Any], str] = str) -> Any:  # noqa: N802 - as a type
    """The type of a field: on the command line an unparsed word, in Python any object."""
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: None if words[0] == "None" else words[0],
        is_instance=lambda value: True,
        str_from_instance=lambda value: [to_text(value)],
    )


def _parse_json(words: list[str]) -> Mapping[str, Any]:
    try:
        value = json.loads(words[0])
    except ValueError as error:
        raise ValueError(f"{words[0]} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{words[0]} is no JSON object")
    return value


JSON = tyro.constructors.PrimitiveConstructorSpec(
    nargs=1,
    metavar="JSON",
    instance_from_str=_parse_json,
    is_instance=lambda value: isinstance(value, Mapping),
    str_from_instance=lambda value: [json.dumps(value)],
)


SEEDS = Word(
    "SEEDS", lambda seeds: words_of_seeds(seeds) if isinstance(seeds, tuple) else str(seeds)
)


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(RunConfig):
    """The fields that every algorithm has, in addition to those of every run."""

    seeds: FreeAmongSeeds[Annotated[Any, SEEDS]] = None
    """in place of seed, those of several runs, each in a process: 8 for 0 to 7, 3-6, or 1,5,9;
    --workers at a time"""
    precision: Literal["bf16", "fp16"] | None = None
    """type that losses are computed in, by autocast; fp16 scales losses; None: float32"""
    eval_interval: Count = 5_000
    """frames between two evaluations"""
    eval_episodes: Number = 10
    """episodes per evaluation, of deterministic actions by default; 0 for no evaluation"""
    stop_at: Annotated[float | None, Needs("eval_episodes")] = None
    """mean evaluation return at which the run stops, the task solved"""
    tuned: bool = True
    """whether the settings known to be good for what it is trained on are the defaults"""
    loggers: Suppress[Sequence[Any]] = ()
    """loggers of yours, in addition to those of ``logger``, which also takes them"""
    hooks: Suppress[Sequence[TrainerHookBase]] = ()
    """your hooks, registered after the algorithm's; one registered later is not restored"""

    compile = None  # type: Any  # a field of some algorithms

    collects: ClassVar[bool] = True
    """Whether it collects what it trains on; otherwise that is a data set."""
    subject: ClassVar[str] = "env"
    """The field that names the environment or task."""
    tuned_for: ClassVar[Settings] = {}
    """By an environment's id, or a pattern of ids, the defaults that are tuned for it."""

    def __post_init__(self) -> None:
        """Accept seeds in any of their forms, and loggers among the names of loggers."""
        super().__post_init__()
        logger = self.logger or ()
        objects = [one for one in logger if not isinstance(one, str)]
        names = tuple(one for one in logger if isinstance(one, str))
        object.__setattr__(self, "logger", names)
        object.__setattr__(self, "loggers", (*self.loggers, *objects))
        given = (self.seed,) if self.seeds == OWN else self.seeds
        if given is not None:
            object.__setattr__(self, "seeds", as_seeds(given))

    @classmethod
    def name(cls) -> str:
        """Its name on the command line."""
        return cls.__name__.lower()

    @property
    def trained_on(self) -> str:
        """The name of the environment or task."""
        return name_of(getattr(self, self.subject))

    def announcements(self) -> list[str]:
        """Return lines about the defaults that were chosen for this run."""
        if not (settings := self.tuned_settings()):
            return []
        listed = ", ".join(f"{name}={value!r}" for name, value in settings.items())
        return [f"tuned for {self.trained_on}: {listed}; --no-tuned leaves it out"]

    @classmethod
    def tuned_settings_for(cls, subject: Any, tuned: bool = True) -> Mapping[str, Any]:
        """The tuned defaults of an environment; none if it is not one of those in ``tuned_for``.

        Those of its id, else of the first pattern that it fits, such as ``"ALE/*"``. A world such
        as ``"torch/CartPole-v1"`` has those of the environment that it equals, if none of its own.
        """
        if not tuned or not isinstance(subject, str):
            return {}
        for name in (subject, original_id(subject)):
            fits = (own for ids, own in cls.tuned_for.items() if fnmatchcase(name, ids))
            if found := cls.tuned_for.get(name) or next(fits, {}):
                return found
        return {}

    def tuned_settings(self) -> Mapping[str, Any]:
        """The fields whose values are those tuned for its environment or task."""
        settings = self.tuned_settings_for(getattr(self, self.subject), self.tuned)
        return {name: value for name, value in settings.items() if getattr(self, name) == value}

    def as_dict(self) -> dict[str, Any]:
        """The fields as plain values, without those that can be given in Python only."""
        hints = hints_of(type(self))
        plain = super().as_dict()
        plain[self.subject] = self.trained_on
        if self.seeds is not None:  # which does not set apart the runs of several seeds
            own = self.seeds == (self.seed,)
            plain["seeds"] = OWN if own else words_of_seeds(self.seeds)
        return {
            name: value
            for name, value in plain.items()
            if tyro.conf.Suppress not in get_args(hints[name])
        }


@dataclass(frozen=True, kw_only=True)
class EnvConfig(AlgorithmConfig):
    """The fields of algorithms with an environment; `hooktrainer.algorithms.task` acts on them."""

    env: Annotated[Any, Word("ENV")]
    """environment: an id, or FILE.py:NAME of a class or function of yours; in Python also a
    specification, a factory, or a list of factories"""
    env_kwargs: Annotated[Mapping[str, Any], JSON] = field(default_factory=dict)
    """keyword arguments of the environment, which is given by its id or by one function"""
    usual_wrappers: bool = True
    """whether environments of known families, such as Atari, get the wrappers usual for them"""
    wrappers: tuple[str, ...] = ()
    """further wrappers, the innermost first: MODULE:NAME or FILE.py:NAME of classes that take the
    environment alone, such as hooktrainer.collect:LastAction"""
    info_keys: tuple[str, ...] = ()
    """entries of the environment's info: logged as means over episodes, and part of every batch"""
    network: Annotated[Any, Word("NETWORK")] = None
    """encoder of observations: nature, impala or small convolutions, or flat; in Python modules"""
    num_cells: tuple[Count, ...] = (64, 64)
    """units in each hidden layer after that"""
    activation: Activation = "relu"
    """activation of the hidden layers"""
    init_policy: Annotated[Any, Word("POLICY")] = None
    """saved policy whose weights to begin with, such as RUN@best, of the same kind and networks; in
    Python also a module of load_policy; None: random ones"""
    normalize_observations: bool = False
    """whether the networks see observations of running mean 0 and variance 1; images are left"""
    compile: Literal["step", "all"] | None = None
    """what is compiled: step, the optimizer step; all, tensor environments as well"""
    collector: Suppress[Callable[..., Iterable[Any]] | None] = None
    """factory of the collector, called with the arguments of `VectorCollector`, its default"""

    # What only some algorithms have as a field.
    eval_deterministic = True
    action_distribution = "gaussian"
    clip_actions = False

    actions: ClassVar[Actions] = "any"
    """The actions it can take."""
    observations: ClassVar[Observations] = "any"
    """The observations it can take."""

    @property
    def environment(self) -> Any:
        """``env``, or the class or function that it names."""
        return named_env(self.env)

    def wrapped(self) -> UsualWrappers | None:
        """The environment with its usual wrappers; ``None`` if it gets none.

        Algorithms that learn from a data set get none: their environment is that of the data.
        """
        if not (self.usual_wrappers and self.collects):
            return None
        return usual_wrappers(self.environment, self.env_kwargs)

    def announcements(self) -> list[str]:
        """Return lines about the defaults that were chosen for this run."""
        wrapped = self.wrapped()
        return [*super().announcements(), *([wrapped.description] if wrapped else [])]

    def as_dict(self) -> dict[str, Any]:
        """The fields as plain values, without those that can be given in Python only."""
        named = {} if self.network is None else {"network": name_of(self.network)}
        return super().as_dict() | named
