"""Seeds of hooktrainer side by side in one process, or one by itself, as its command line has them.

    python benchmarks/seeds.py --seeds 0-31 --compile step --solve --frames 50000
    python benchmarks/seeds.py --seed 7 --frames 40960 --warmup 10240

With --solve every seed trains until its own evaluation says that it is solved, and the result is
the CPU seconds of the whole process, imports, compilation and evaluations included, over the seeds
solved. Without it nothing is evaluated, and the clock starts after the warm-up.
"""

from __future__ import annotations

import resource
import tempfile
from dataclasses import dataclass
from typing import Any, Literal

import tyro
from measure import Meter, Run

from hooktrainer import Trainer, TrainerHookBase
from hooktrainer.algorithms import DQN, PPO, SAC
from hooktrainer.run.seeds import as_seeds

ALGORITHMS = {"ppo": PPO, "dqn": DQN, "sac": SAC}


@dataclass(kw_only=True)
class Args(Run):
    """Options of the seeds."""

    algorithm: Literal["ppo", "dqn", "sac"] = "ppo"
    """the algorithm"""
    env: Literal["CartPole-v1", "torch/CartPole-v1", "Pendulum-v1"] = "CartPole-v1"
    """the environment"""
    seeds: str | None = None
    """seeds that train side by side, such as 0-31; by default --seed trains by itself"""
    compile: Literal["step", "all"] | None = None
    """compile the optimizer step, or with a tensor world also collecting"""
    num_envs: int | None = None
    """number of environments of a seed; by default, as in what follows, the algorithm's"""
    steps_per_batch: int | None = None
    """steps in each environment per batch"""
    mini_batch_size: int | None = None
    """frames in each mini-batch (PPO)"""
    width: int | None = None
    """units in each of two hidden layers"""


class TickTogether(TrainerHookBase):
    """Tells the meter about the frames of all seeds, which share this hook.

    Args:
        meter: the meter.
    """

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self._trainers: list[Trainer] = []

    def register(self, trainer: Trainer, name: str = "tick_together") -> None:
        """Register at the end of the loop."""
        self._trainers.append(trainer)
        trainer.register_op("post_steps", self)
        trainer.register_module(name, self)

    def __call__(self) -> None:
        """Tick."""
        self.meter.tick(sum(trainer.collected_frames for trainer in self._trainers))

    def __deepcopy__(self, memo: dict[int, Any]) -> TickTogether:
        """Itself, where each seed gets a copy of its hooks."""
        return self


def settings(args: Args, stop_at: float) -> dict[str, Any]:
    """Return the fields of the algorithm that the options set; the others are its defaults."""
    cells = args.width and (args.width, args.width)
    given = {
        "num_envs": args.num_envs,
        "steps_per_batch": args.steps_per_batch,
        "mini_batch_size": args.mini_batch_size,
        "num_cells": cells,
        "seeds": args.seeds,
    }
    until = {"eval_episodes": 0, "stop_at": None, "save_interval": args.frames}
    if args.solve:
        until = {"stop_at": stop_at}
    return until | {name: value for name, value in given.items() if value is not None}


def cpu_seconds() -> float:
    """Return the CPU seconds of this process from its very start, and of its compilers."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def main(args: Args) -> None:
    """Train, and print the result as one line of JSON."""
    args.prepare()
    runs = len(as_seeds(args.seeds) or (args.seed,))
    meter = Meter(args, args.env.removeprefix("torch/"), runs)
    goal = meter.goal.threshold
    algorithm = ALGORITHMS[args.algorithm](
        env=args.env,
        total_frames=args.frames,
        seed=args.seed,
        compile=args.compile,
        hooks=[TickTogether(meter)],
        run_dir=tempfile.mkdtemp(dir=args.log_dir),
        progress_bar=False,
        threads=1,
        **settings(args, goal),
    )
    meter.start()
    trained = algorithm.train(keep=True)
    spent = cpu_seconds()
    returns = [
        trainer.metrics.latest("eval/return") for trainer in (trained if args.seeds else [trained])
    ]
    solved = sum(mean is not None and mean >= goal for mean in returns)
    if solved:
        meter.reached["seeds"] = {"solved": solved, "cpu_seconds": round(spent / solved, 3)}
    meter.print(seeds=runs, process_cpu_seconds=round(spent, 3))


if __name__ == "__main__":
    main(tyro.cli(Args))
