"""Trains rows of docs/results.md with Stable-Baselines3 and sb3-contrib, for its second table.

    python benchmarks/peers.py ppo-cartpole sac-pendulum --seeds 0-4

The settings are those of RL Baselines3 Zoo, in peers.yaml. The deterministic policy is evaluated as
often as in the row, in the same episodes, and training goes on to the zoo's frames. A seed is a
process with one thread, which writes no logs. Its CPU seconds include its start and evaluations. So
do hooktrainer's: the row's own seed is trained before, in a process, to time it on this machine.
Each seed is added to results/peers/ROW.json once it has ended; those there are skipped.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from operator import mul
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from measure import mean_return

if TYPE_CHECKING:
    from hooktrainer.show.results.result_rows import RowRecipe

FOLDER = Path(__file__).parent
PACKAGES = ("stable-baselines3", "sb3-contrib")


def train(
    settings: dict[str, Any], row: dict[str, Any], episodes: list[int], seed: int
) -> list[tuple[int, float, float]]:
    """Train one seed; return the frames, the mean return and the CPU seconds of each evaluation.

    ``episodes`` has the seed of each that is played to evaluate.
    """
    import numpy as np
    import sb3_contrib
    import stable_baselines3 as sb3
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.noise import NormalActionNoise
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    options = dict(settings)
    name, frames = options.pop("algorithm"), options.pop("n_timesteps")
    envs: Any = make_vec_env(row["env"], options.pop("n_envs", 1), seed=seed)
    if options.pop("normalize", False):
        envs = VecNormalize(envs, gamma=options["gamma"])
    if options.pop("noise_type", None):
        size = envs.action_space.shape
        noise = NormalActionNoise(np.zeros(size), np.full(size, options.pop("noise_std")))
        options["action_noise"] = noise
    for option, value in options.items():
        if isinstance(value, str):  # to zero, as in "lin_0.001"
            options[option] = partial(mul, float(value.removeprefix("lin_")))
    kind = getattr(sb3, name, None) or getattr(sb3_contrib, name)
    model = kind("MlpPolicy", envs, seed=seed, device="cpu", **options)
    curve: list[tuple[int, float, float]] = []

    def act(observations: Any) -> Any:
        if isinstance(envs, VecNormalize):
            observations = envs.normalize_obs(observations)
        return model.predict(observations, deterministic=True)[0]

    class Evaluate(BaseCallback):
        """Evaluates after the updates with which a multiple of the row's interval is reached."""

        def _on_rollout_start(self) -> None:
            last = curve[-1][0] if curve else 0
            if self.num_timesteps // row["interval"] > last // row["interval"]:
                self._evaluate()

        def _on_training_end(self) -> None:
            if not curve or self.num_timesteps > curve[-1][0]:
                self._evaluate()

        def _on_step(self) -> bool:
            return True

        def _evaluate(self) -> None:
            score = round(mean_return(row["env"], act, len(episodes), episodes), 4)
            curve.append((self.num_timesteps, score, round(time.process_time(), 2)))

    model.learn(frames, Evaluate())
    return curve


def task_of(recipe: RowRecipe) -> dict[str, Any]:
    """Return what a row trains on, how often it is evaluated, and at which return it stops."""
    from hooktrainer import algorithms
    from hooktrainer.algorithms.algorithm import parse

    algorithm, *words = recipe.train
    config = parse(algorithms.get(algorithm), words)
    return {
        "env": config.env,
        "interval": config.eval_interval,
        "episodes": config.eval_episodes,
        "stop_at": config.stop_at,
    }


def time_ours(recipe: RowRecipe, seed: int) -> float:
    """Train one seed of the row with hooktrainer; return its CPU seconds."""
    from hooktrainer.cli.verify_results import train_row

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with TemporaryDirectory() as place:
        train_row(recipe, seed, seed, Path(place))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2)


def add(recipe: RowRecipe, settings: dict[str, Any], seeds: Sequence[int]) -> None:
    """Train the seeds that the file of a row lacks, and add each."""
    from hooktrainer.base.checks import EVALUATION_SEED
    from hooktrainer.base.fs import write_atomically
    from hooktrainer.collect.batched_env import EpisodeSeeds
    from hooktrainer.show.results.result_rows import surroundings

    head = {
        "settings": settings,
        "task": task_of(recipe),
        "surroundings": surroundings((*recipe.packages, *PACKAGES)),
    }
    file = FOLDER / "results" / "peers" / f"{recipe.name}.json"
    episode_seed = EpisodeSeeds(EVALUATION_SEED)
    episodes = [episode_seed(env, 0) for env in range(head["task"]["episodes"])]
    there = json.loads(file.read_text()) if file.is_file() else {**head, "seeds": {}}
    done = there.pop("seeds")
    if there != head:
        raise SystemExit(f"{file} was made with other settings, packages or processor: delete it.")
    for seed in seeds:
        if str(seed) in done:
            continue
        ours = time_ours(recipe, seed)
        # A fresh process, whose CPU seconds include its start; it does not import hooktrainer.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            curve = process.submit(train, settings, head["task"], episodes, seed).result()
        done[str(seed)] = {"hooktrainer_cpu_seconds": ours, "curve": curve}
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
        each = [f'"{k}": {json.dumps(done[k])}' for k in sorted(done, key=int)]
        text = "{" + ",\n".join([*lines, '"seeds": {\n' + ",\n".join(each) + "\n}"]) + "}\n"
        file.parent.mkdir(exist_ok=True)
        write_atomically(file, text)
        print(f"{recipe.name}, seed {seed}: {curve[-1]}, hooktrainer {ours} CPU s", flush=True)


def main() -> None:
    """Train the rows that are named."""
    import yaml

    from hooktrainer.run.seeds import as_seeds
    from hooktrainer.show.results.result_rows import read_recipes

    rows = yaml.safe_load((FOLDER / "peers.yaml").read_text())
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"by default all: {', '.join(rows)}")
    parser.add_argument("--seeds", default="0-4", help="such as 0-4 (default)")
    args = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    recipes = read_recipes()
    for name in args.rows or rows:
        add(recipes[name], rows[name], as_seeds(args.seeds) or ())


if __name__ == "__main__":
    main()
