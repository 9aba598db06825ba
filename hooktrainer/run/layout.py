"""`Layout`: the parts of a recipe's run put where its options say."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from ..base.cores import pin
from ..errors import ConfigError
from .config import RunConfig
from .placement import Machine, Placement
from .ranks import Ranks

if TYPE_CHECKING:
    from ..trainer import Trainer


class Layout:
    """Where the learner computes, and what collects and evaluates for it.

    Args:
        args: The options of a run.
        ranks: The learners.
        collects: Whether the run has environments to collect from, not a data set.

    Attributes:
        engine: ``"local"`` or ``"ray"``.
        collectors: Place and number of the collecting processes.

    Raises:
        ConfigError: If something is not there, or the options contradict each other.
    """

    def __init__(self, args: RunConfig, ranks: Ranks, *, collects: bool = True) -> None:
        placement = Placement()
        if args.placement is not None:
            placement = Placement.parse(args.placement).check(Machine.here())
        learner, place = placement.get("learner"), placement.get("collectors")
        asked = f"--placement {args.placement!r}"
        if args.collectors is not None:
            if place.count is None and not place.numbers:
                place = replace(place, count=args.collectors)
            elif args.collectors != place.processes:
                raise ConfigError(f"--collectors {args.collectors} contradicts {asked}.")
        parts = {"collectors": place, "eval": placement.get("eval")}
        needs_ray = place.processes > 1 or any(
            part.kind == "node"
            or (part.numbers and part.kind == "cpu")
            or (name in placement.places and part.kind != learner.kind)
            for name, part in parts.items()
        )
        self.engine = args.engine or ("ray" if needs_ray else "local")
        if not collects:
            _check_collects_nothing(args, self.engine, ranks)
        counted = learner.kind == "gpu" or learner.count is not None
        contradictions = {
            f"{asked}, --collectors {args.collectors}: these need processes of their own; use "
            "--engine ray.": needs_ray and self.engine == "local",
            "--engine ray has one learner, and torchrun starts several: leave one of them out.": (
                self.engine == "ray" and ranks.world_size > 1
            ),
            f"--overlap {args.overlap}: with --engine ray collectors work ahead by one batch at "
            "most; give --overlap 1.": self.engine == "ray" and (args.overlap or 0) > 1,
            f"{asked}: {learner} needs torchrun --nproc-per-node {learner.processes}, and there "
            f"are {ranks.world_size} processes.": counted and learner.processes != ranks.world_size,
            f"--device {args.device} and {asked} both place the learner: leave one out.": (
                args.device is not None and "learner" in placement.places
            ),
            f"--timeout {args.timeout:g}: give more than 0 seconds.": not args.timeout > 0,
            f"--stages {args.stages}: stages need processes; add --workers 2.": (
                args.stages > 1 and not args.workers
            ),
        }
        for message, is_true in contradictions.items():
            if is_true:
                raise ConfigError(message)
        self.collectors = place
        self._args = args
        self._placement = placement
        self._ranks = ranks
        self._overlap = args.overlap if collects else None
        self._device = check_device(args.device or "cpu")

    def settle(self) -> torch.device:
        """Put this process where the learner belongs, and return the device it computes on."""
        learner, rank = self._placement.get("learner"), self._ranks.local_rank
        if learner.kind == "gpu":
            self._device = torch.device("cuda", learner.number(rank) or 0)
            torch.cuda.set_device(self._device)
        elif learner.numbers:
            share = len(learner.numbers) >= self._ranks.world_size > 1
            pin([learner.number(rank)] if share else learner.numbers)
        is_usual = self.engine == "local" and not (self._placement.places or self._overlap)
        if self._ranks.rank == 0 and not is_usual:
            print(self)
        return self._device

    def apply(self, trainer: Trainer) -> None:
        """Put the collector and the evaluation of ``trainer`` where they belong.

        Raises:
            ConfigError: If the networks are not on the learner's device.
        """
        if self._device.type != "cpu" and isinstance(trainer.loss_module, torch.nn.Module):
            devices = {str(p.device) for p in trainer.loss_module.parameters()}
            if devices != {str(self._device)}:
                raise ConfigError(
                    f"the learner belongs on {self._device}, and this recipe's networks are on "
                    f"{', '.join(sorted(devices))}: let it move them with .to(run.device)."
                )
        timeout = self._args.timeout
        if workers := self._args.workers:
            # Not started here if only a copy or a share of the collector collects.
            here = self.engine == "local" and not self._overlap and self._ranks.world_size == 1
            trainer.source.use_workers(workers, self._args.stages, at_once=here, timeout=timeout)
            timeout *= 2  # so that the process that waits for a silent worker can name it
        if self.engine == "ray":
            from .ray import use_ray

            evaluation = self._placement.get("eval")
            use_ray(
                trainer, self.collectors, evaluation, overlap=self._overlap or 0, timeout=timeout
            )
        elif self._overlap is not None:
            from ..collect.overlap import OverlappedCollector

            trainer.collector = OverlappedCollector(
                trainer.collector, self._overlap, timeout=timeout
            )
            trainer.collector.register(trainer)

    def __str__(self) -> str:
        learner = self._placement.get("learner")
        ranks = f" ({self._ranks.world_size} processes)" if self._ranks.world_size > 1 else ""
        here = "in the learner's process"
        if self.engine == "ray":
            collectors = f"{replace(self.collectors, count=self.collectors.processes)} (Ray)"
        else:
            collectors = "in a process beside the learner's" if self._overlap else here
        if self._overlap:
            collectors += f", {self._overlap} batch{'es' * (self._overlap > 1)} ahead"
        evaluation = f"{self._placement.get('eval')} (Ray)" if self.engine == "ray" else here
        return f"placement: learner {learner}{ranks}; collectors {collectors}; eval {evaluation}"


def check_device(name: str) -> torch.device:
    """The device of a name.

    Raises:
        ConfigError: If there is none of that name, or not on this machine.
    """
    try:
        found = torch.device(name)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).split("\n", 1)[0]
        raise ConfigError(f"device={name!r} is not to be had: {reason}") from None
    return found


def _check_collects_nothing(args: RunConfig, engine: str, ranks: Ranks) -> None:
    """Refuse what is about collecting, in a run that trains on a data set."""
    given = {
        f"--overlap {args.overlap}": args.overlap,
        f"--workers {args.workers}": args.workers,
        f"--collectors {args.collectors}": args.collectors,
        f"--engine {args.engine}": args.engine == "ray",
        f"--placement {args.placement!r}": engine == "ray",
        f"torchrun with {ranks.world_size} processes": ranks.world_size > 1,
    }
    if asked := [option for option, is_given in given.items() if is_given]:
        raise ConfigError(
            f"{asked[0]}: this recipe trains on a data set and collects nothing; leave it out."
        )
