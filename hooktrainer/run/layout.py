"""`Layout`: the parts of a recipe's run put where its options say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..base.cores import pin
from ..errors import ConfigError
from .placement import Machine, Place, Placement
from .ranks import Ranks

if TYPE_CHECKING:
    from ..trainer import Trainer


class Layout:
    """Where the learner computes, and what collects and evaluates for it.

    Args:
        placement: Which part goes where, checked.
        engine: ``"local"`` or ``"ray"``.
        collectors: Place and number of the collecting processes.
        ranks: The learners.
        overlap: How many batches are collected ahead; ``None`` if nobody said.
        workers: Number of processes that step the environments of a collector.
        stages: Number of stages in which they do.
        timeout: Seconds after which a process that does not answer ends the run.
        device: Where the learner computes, if the placement does not say it.
    """

    def __init__(
        self,
        placement: Placement,
        engine: str,
        collectors: Place,
        ranks: Ranks,
        overlap: int | None = None,
        workers: int = 0,
        stages: int = 1,
        timeout: float = 600.0,
        device: str | None = None,
    ) -> None:
        self.placement = placement
        self.engine = engine
        self.collectors = collectors
        self._ranks = ranks
        self._overlap = overlap
        self._workers = workers
        self._stages = stages
        self._timeout = timeout
        self._device = torch.device("cpu") if device is None else check_device(device)

    @classmethod
    def of(cls, args: Any, ranks: Ranks, *, collects: bool = True) -> Layout:
        """What a recipe's options ask for.

        Args:
            args: The options.
            ranks: The learners.
            collects: Whether the recipe has environments to collect from, not a data set.

        Raises:
            ConfigError: If that is not there, or the options contradict each other.
        """
        placement = Placement()
        if args.placement is not None:
            placement = Placement.parse(args.placement).check(Machine.here())
        place = placement.get("collectors")
        number = place.processes
        if args.collectors is not None:
            if place.count is None and not place.numbers:
                place, number = Place(place.kind, place.numbers, args.collectors), args.collectors
            elif args.collectors != number:
                raise ConfigError(
                    f"--collectors {args.collectors} contradicts --placement "
                    f"{args.placement!r}, which has {number}: leave one out."
                )
        learner = placement.get("learner")
        evaluation = placement.get("eval")
        apart = [
            name
            for name, part in (("collectors", place), ("eval", evaluation))
            if part.kind == "node"
            or (part.numbers and part.kind == "cpu")
            or (name in placement.places and part.kind != learner.kind)
        ]
        if number > 1:
            apart.append(f"{number} collectors")
        if args.engine == "local" and apart:
            raise ConfigError(
                f"{apart[-1]} need processes of their own, which --engine local does not start: "
                "use --engine ray."
            )
        engine = args.engine or ("ray" if apart else "local")
        if not collects:
            _check_collects_nothing(args, engine, ranks)
        if engine == "ray" and ranks.world_size > 1:
            raise ConfigError(
                "--engine ray has one learner, so it cannot be used under torchrun: leave out one "
                "of them."
            )
        if engine == "ray" and (args.overlap or 0) > 1:
            raise ConfigError(
                f"--overlap {args.overlap}: with --engine ray collectors work ahead by one batch "
                "at most; give --overlap 1."
            )
        counted = learner.kind == "gpu" or learner.count is not None
        if counted and learner.processes != ranks.world_size:
            raise ConfigError(
                f"--placement {args.placement!r}: learner: {learner} is {learner.processes} "
                f"processes and there are {ranks.world_size}; start them with torchrun "
                f"--nproc-per-node {learner.processes}."
            )
        if args.device is not None and "learner" in placement.places:
            raise ConfigError(
                f"--device {args.device} and --placement {args.placement!r} both say where the "
                "learner computes: leave one out."
            )
        if not args.timeout > 0:
            raise ConfigError(f"--timeout {args.timeout:g}: give more than 0 seconds.")
        if args.stages > 1 and not args.workers:
            raise ConfigError(
                f"--stages {args.stages}: stages need processes beside this one; add --workers 2."
            )
        return cls(
            placement,
            engine,
            place,
            ranks,
            overlap=args.overlap if collects else None,
            workers=args.workers,
            stages=args.stages,
            timeout=args.timeout,
            device=args.device,
        )

    def settle(self) -> torch.device:
        """Put this process where the learner belongs, and return the device it computes on."""
        learner, rank = self.placement.get("learner"), self._ranks.local_rank
        if learner.kind == "gpu":
            self._device = torch.device("cuda", learner.number(rank) or 0)
            torch.cuda.set_device(self._device)
        elif learner.numbers:
            share = len(learner.numbers) >= self._ranks.world_size > 1
            pin([learner.number(rank)] if share else learner.numbers)
        is_usual = self.engine == "local" and not (self.placement.places or self._overlap)
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
        if self._workers:
            # Not started here if only a copy or a share of the collector collects.
            here = self.engine == "local" and not self._overlap and self._ranks.world_size == 1
            trainer.source.use_workers(
                self._workers, self._stages, at_once=here, timeout=self._timeout
            )
        # A silent worker is named by the process that waits for it, which is given up later.
        timeout = self._timeout * (2 if self._workers else 1)
        if self.engine == "ray":
            from .ray import use_ray

            use_ray(
                trainer,
                self.collectors,
                self.placement.get("eval"),
                overlap=self._overlap or 0,
                timeout=timeout,
            )
        elif self._overlap is not None:
            from ..collect.overlap import OverlappedCollector

            trainer.collector = OverlappedCollector(
                trainer.collector, self._overlap, timeout=timeout
            )
            trainer.collector.register(trainer)

    def __str__(self) -> str:
        learner = self.placement.get("learner")
        ranks = f" ({self._ranks.world_size} processes)" if self._ranks.world_size > 1 else ""
        here = "in the learner's process"
        number = self.collectors.processes
        where = f"{number}@{Place(self.collectors.kind, self.collectors.numbers)} (Ray)"
        collectors = where if self.engine == "ray" else here
        if self._overlap and self.engine == "local":
            collectors = "in a process beside the learner's"
        if self._overlap:
            collectors += f", {self._overlap} batch{'es' * (self._overlap > 1)} ahead"
        evaluation = f"{self.placement.get('eval')} (Ray)" if self.engine == "ray" else here
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


def _check_collects_nothing(args: Any, engine: str, ranks: Ranks) -> None:
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
