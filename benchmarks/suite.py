"""The benchmarks as one table: what runs against what, what is measured, what is to be reached."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """One row of a table: a script and its options.

    Args:
        name: the row's name.
        script: a script of this folder; it ends in one line of JSON.
        options: its command line.
        environment: a folder of the benchmarks' environment, where its packages are by themselves.
    """

    name: str
    script: str
    options: tuple[str, ...] = ()
    environment: str = ""

    @property
    def library(self) -> str:
        """Whose row this is: the part of the name before the first comma."""
        return self.name.partition(",")[0]


@dataclass(frozen=True)
class Measure:
    """One column of a table.

    Args:
        label: the column's heading, unit included.
        path: where the value is in the script's JSON.
        higher: whether more is better.
    """

    label: str
    path: tuple[str, ...]
    higher: bool = True


@dataclass(frozen=True)
class Ratio:
    """A target: `ours` does at least `bound` times as well as `against`."""

    ours: str
    against: str
    bound: float


@dataclass(frozen=True)
class Limit:
    """A target: the value of `ours` is at most `bound`."""

    ours: str
    bound: float
    measure: int = 0


@dataclass(frozen=True)
class Benchmark:
    """One table.

    Args:
        name: how `run.py --only` calls it.
        title: its heading; details behind a colon.
        cases: its rows.
        measures: its columns; ratios are taken of the first.
        compared: the rows whose ratio to every other row is shown.
        targets: what is to be reached.
        rounds: how often each case runs; with `seeds`, round `r` has seed `r`.
        seeds: whether rounds differ by seed (otherwise all have seed 0).
        quick: options for a short check, put last on every command line.
        drawn: whether the table has a panel in the picture.
    """

    name: str
    title: str
    cases: tuple[Case, ...]
    measures: tuple[Measure, ...]
    compared: tuple[str, ...] = ()
    targets: tuple[Ratio | Limit, ...] = ()
    rounds: int = 5
    seeds: bool = False
    quick: tuple[str, ...] = ()
    drawn: bool = True


SPEED = (
    Measure("frames per CPU second", ("frames_per_cpu_second",)),
    Measure("peak MiB", ("peak_memory_mib",), higher=False),
)
TRAINED = (*SPEED, Measure("return", ("mean_return",)))  # speed without learning is none


def seconds_until(goal: str, label: str) -> tuple[Measure, Measure]:
    """Return the two columns of a goal: CPU seconds and frames."""
    return (
        Measure(f"CPU s, {label}", ("reached", goal, "cpu_seconds"), higher=False),
        Measure(f"frames, {label}", ("reached", goal, "frames"), higher=False),
    )


TRAINING = seconds_until("training", "100 training episodes")
EVALUATION = seconds_until("evaluation", "deterministic policy")


def frames(count: int, warmup: int, *more: str) -> tuple[str, ...]:
    """Return the options of a run that is timed from frame `warmup` to frame `count`."""
    return (f"--frames={count}", f"--warmup={warmup}", *more)


def solve(count: int, *more: str) -> tuple[str, ...]:
    """Return the options of a run that ends when solved, or after `count` frames."""
    return ("--solve", f"--frames={count}", *more)


# The settings of RL Baselines3 Zoo for PPO on CartPole-v1, as the hand-written script names them.
ZOO_PPO = (
    "--num-envs=8",
    "--num-steps=32",
    "--epochs=20",
    "--minibatches=1",
    "--lr=1e-3",
    "--gamma=0.98",
    "--lmbda=0.8",
    "--entropy=0",
    "--anneal",
)

LOOP = Benchmark(
    name="loop",
    title="One optimizer step of a tiny network: backward, clip, SGD; what hooks and logging add",
    cases=(Case("loop", "loop.py"),),
    measures=(
        Measure("µs a step", ("microseconds",), higher=False),
        Measure("over the bare loop", ("over_hand_written",), higher=False),
        Measure("over the same operations", ("over_same",), higher=False),
    ),
    targets=(
        Limit("hooktrainer, 0 no-op hooks", 8.0, measure=1),
        Limit("hooktrainer, 0 no-op hooks", 5.0, measure=2),
        Limit("hooktrainer, one no-op hook", 0.05),
    ),
    rounds=1,
    quick=("--rounds=2", "--steps=100"),
)

PPO = Benchmark(
    name="ppo",
    title="PPO on CartPole-v1, 4 environments: 128 steps each, 4 epochs of 4 minibatches, 64x64",
    cases=(
        Case("hooktrainer, eager", "hooktrainer_algorithms.py", frames(90_000, 10_240)),
        Case(
            "hooktrainer, compiled",
            "hooktrainer_algorithms.py",
            frames(120_000, 10_240, "--compile=step"),
        ),
        Case("hand-written, eager", "handwritten_ppo.py", frames(120_000, 10_240)),
        Case("hand-written, compiled", "handwritten_ppo.py", frames(150_000, 10_240, "--compile")),
        Case("TorchRL, PPOTrainer", "torchrl_ppo.py", frames(20_000, 4_096)),
        Case(
            "TorchRL, PPOTrainer, lean environments",
            "torchrl_ppo.py",
            frames(20_000, 4_096, "--env=lean"),
        ),
        Case(
            "TorchRL, PPOTrainer, vectorised environment",
            "torchrl_ppo.py",
            frames(30_000, 4_096, "--env=vector"),
        ),
        Case("Stable-Baselines3, matched", "sb3.py", frames(50_000, 5_120)),
        Case("Stable-Baselines3, rl-zoo", "sb3.py", frames(40_000, 5_120, "--settings=zoo")),
        Case("CleanRL, ppo.py", "cleanrl.py", frames(50_000, 5_120)),
    ),
    measures=TRAINED,
    compared=("hooktrainer, eager", "hooktrainer, compiled"),
    targets=(
        Ratio("hooktrainer, eager", "TorchRL, PPOTrainer", 6.0),
        Ratio("hooktrainer, eager", "CleanRL, ppo.py", 2.0),
        Ratio("hooktrainer, eager", "Stable-Baselines3, matched", 1.7),
        Ratio("hooktrainer, eager", "hand-written, eager", 0.9),
        Ratio("hooktrainer, compiled", "TorchRL, PPOTrainer", 9.0),
    ),
    quick=frames(6_000, 2_048),
)

ATARI = Benchmark(
    name="atari",
    title="PPO on Pong, 8 games: 128 steps each, 4 epochs of 4 minibatches, Mnih et al.'s network",
    cases=(
        Case("hooktrainer, PPO", "atari.py", frames(7_168, 1_024)),
        Case("Stable-Baselines3, rl-zoo", "atari.py", frames(7_168, 1_024, "--library=sb3")),
        Case(
            "CleanRL, ppo_atari.py",
            "cleanrl.py",
            frames(7_168, 1_024, "--algorithm=ppo-atari", "--num-envs=8"),
        ),
    ),
    measures=SPEED,
    compared=("hooktrainer, PPO",),
    targets=(
        Ratio("hooktrainer, PPO", "CleanRL, ppo_atari.py", 1.2),
        Ratio("hooktrainer, PPO", "Stable-Baselines3, rl-zoo", 1.2),
    ),
    rounds=3,
    quick=frames(3_072, 1_024),
    drawn=False,
)

PPO64 = Benchmark(
    name="ppo64",
    title="PPO on CartPole-v1, 64 environments: 128 steps each, 4 epochs of 4 minibatches, 64x64",
    cases=tuple(
        Case(name, script, (*options, "--num-envs=64"))
        for name, script, options in (
            ("hooktrainer, eager", "hooktrainer_algorithms.py", frames(500_000, 50_000)),
            (
                "hooktrainer, compiled",
                "hooktrainer_algorithms.py",
                frames(500_000, 50_000, "--compile=step"),
            ),
            ("hand-written, eager", "handwritten_ppo.py", frames(600_000, 50_000)),
            ("hand-written, compiled", "handwritten_ppo.py", frames(600_000, 50_000, "--compile")),
            ("TorchRL, PPOTrainer", "torchrl_ppo.py", frames(60_000, 16_384)),
            (
                "TorchRL, PPOTrainer, vectorised environment",
                "torchrl_ppo.py",
                frames(200_000, 16_384, "--env=vector"),
            ),
            ("Stable-Baselines3, matched", "sb3.py", frames(250_000, 25_000)),
            ("CleanRL, ppo.py", "cleanrl.py", frames(200_000, 25_000)),
        )
    ),
    measures=TRAINED,
    compared=("hooktrainer, eager", "hooktrainer, compiled"),
    targets=(
        Ratio("hooktrainer, eager", "TorchRL, PPOTrainer, vectorised environment", 2.5),
        Ratio("hooktrainer, eager", "hand-written, eager", 0.9),
    ),
    quick=frames(35_000, 8_192),
)

WORLDS = Benchmark(
    name="worlds",
    title="PPO on torch/CartPole-v1, the environments as tensors: 128 steps each, as above",
    cases=tuple(
        case
        for envs, count in ((4, 250_000), (64, 800_000))
        for case in (
            Case(
                f"hooktrainer, all compiled, {envs} environments",
                "hooktrainer_algorithms.py",
                frames(count, 50_000, "--world", "--compile=all", f"--num-envs={envs}"),
            ),
            Case(
                f"hooktrainer, eager, {envs} environments",
                "hooktrainer_algorithms.py",
                frames(count // 2, 50_000, "--world", f"--num-envs={envs}"),
            ),
            Case(
                f"hand-written, eager, Gymnasium, {envs} environments",
                "handwritten_ppo.py",
                frames(count // 2, 50_000, f"--num-envs={envs}"),
            ),
            Case(
                f"JAX, all compiled, {envs} environments",
                "jax_ppo.py",
                frames(2_000_000, 600_000, f"--num-envs={envs}", f"--iterations={64 // envs}"),
                environment="jax",
            ),
        )
    ),
    measures=TRAINED,
    compared=tuple(f"hooktrainer, all compiled, {envs} environments" for envs in (4, 64)),
    targets=(
        Ratio(
            "hooktrainer, all compiled, 4 environments", "JAX, all compiled, 4 environments", 0.3
        ),
        Ratio(
            "hooktrainer, all compiled, 64 environments", "JAX, all compiled, 64 environments", 0.8
        ),
        Ratio(
            "hooktrainer, all compiled, 4 environments",
            "hand-written, eager, Gymnasium, 4 environments",
            3.0,
        ),
        Ratio(
            "hooktrainer, all compiled, 64 environments",
            "hand-written, eager, Gymnasium, 64 environments",
            1.6,
        ),
    ),
    rounds=3,
    quick=frames(35_000, 10_240),
    drawn=False,
)

_ROBOTS = ("--world", "--num-envs=1024", "--num-steps=24", "--epochs=5")
_ROBOT_FRAMES = frames(1_200_000, 300_000)

WORLDS1024 = Benchmark(
    name="worlds1024",
    title="PPO on torch/CartPole-v1, 1,024 environments: 24 steps each, 5 epochs of 4 minibatches",
    cases=(
        Case(
            "hooktrainer, all compiled",
            "hooktrainer_algorithms.py",
            (*_ROBOT_FRAMES, *_ROBOTS, "--compile=all"),
        ),
        Case("hooktrainer, eager", "hooktrainer_algorithms.py", (*_ROBOT_FRAMES, *_ROBOTS)),
        Case("rsl_rl", "rsl_rl_ppo.py", frames(900_000, 100_000)),
    ),
    measures=TRAINED,
    compared=("hooktrainer, all compiled", "hooktrainer, eager"),
    targets=(Ratio("hooktrainer, all compiled", "rsl_rl", 2.5),),
    rounds=3,
    quick=frames(80_000, 26_000),
    drawn=False,
)

# Our off-policy rows collect 16 frames and then make 16 gradient steps, as our recipes do in larger
# portions, and in a second row one and one, as the peers do.
ONE_BY_ONE = "--frames-per-batch=1"
DQN_FRAMES = frames(12_000, 3_000)
SAC_FRAMES = frames(1_500, 500)
OUR_DQN = (*DQN_FRAMES, "--algorithm=dqn")
OUR_SAC = (*SAC_FRAMES, "--algorithm=sac")

DQN = Benchmark(
    name="dqn",
    title="DQN on CartPole-v1: one gradient step a frame, batches of 128, 120x84 ReLU",
    cases=(
        Case("hooktrainer, 16 frames and steps at a time", "hooktrainer_algorithms.py", OUR_DQN),
        Case("hooktrainer, one at a time", "hooktrainer_algorithms.py", (*OUR_DQN, ONE_BY_ONE)),
        Case("hooktrainer, compiled", "hooktrainer_algorithms.py", (*OUR_DQN, "--compile=step")),
        Case(
            "hooktrainer, one at a time, compiled",
            "hooktrainer_algorithms.py",
            (*OUR_DQN, ONE_BY_ONE, "--compile=step"),
        ),
        Case("hand-written, eager", "handwritten_dqn.py", frames(15_000, 3_000)),
        Case("hand-written, compiled", "handwritten_dqn.py", frames(15_000, 3_000, "--compile")),
        Case("TorchRL, DQNTrainer", "torchrl_dqn.py", frames(4_000, 2_000)),
        Case(
            "TorchRL, DQNTrainer, 100 frames and steps at a time",
            "torchrl_dqn.py",
            frames(5_000, 2_000, "--env=lean", "--frames-per-batch=100"),
        ),
        Case("Stable-Baselines3, matched", "sb3.py", frames(8_000, 2_000, "--algorithm=dqn")),
        Case("CleanRL, dqn.py", "cleanrl.py", frames(10_000, 2_000, "--algorithm=dqn")),
    ),
    measures=TRAINED,
    compared=("hooktrainer, 16 frames and steps at a time", "hooktrainer, one at a time"),
    targets=tuple(
        Ratio(f"hooktrainer, {rhythm}", peer, bound)
        for rhythm in ("16 frames and steps at a time", "one at a time")
        for peer, bound in (
            ("TorchRL, DQNTrainer", 4.0),
            ("Stable-Baselines3, matched", 1.5),
            ("CleanRL, dqn.py", 1.0),
        )
    )
    + tuple(
        Ratio(f"hooktrainer, one at a time{compiled}", "hand-written, eager", 1.0)
        for compiled in ("", ", compiled")
    ),
    quick=frames(2_000, 1_200),
)

SAC = Benchmark(
    name="sac",
    title="SAC on Pendulum-v1: one gradient step a frame, batches of 256, 256x256 ReLU",
    cases=(
        Case("hooktrainer, 16 frames and steps at a time", "hooktrainer_algorithms.py", OUR_SAC),
        Case("hooktrainer, one at a time", "hooktrainer_algorithms.py", (*OUR_SAC, ONE_BY_ONE)),
        Case(
            "hooktrainer, one at a time, compiled",
            "hooktrainer_algorithms.py",
            (*OUR_SAC, ONE_BY_ONE, "--compile=step"),
        ),
        Case("hand-written, eager", "handwritten_sac.py", frames(1_500, 500)),
        Case("TorchRL, SACTrainer", "torchrl_sac.py", frames(1_200, 500)),
        Case(
            "TorchRL, SACTrainer, 100 frames and steps at a time",
            "torchrl_sac.py",
            frames(1_200, 500, "--frames-per-batch=100"),
        ),
        Case("Stable-Baselines3, rl-zoo", "sb3.py", frames(1_500, 500, "--algorithm=sac")),
        Case(
            "CleanRL, sac_continuous_action.py",
            "cleanrl.py",
            frames(1_500, 500, "--algorithm=sac"),
        ),
    ),
    measures=TRAINED,
    compared=("hooktrainer, 16 frames and steps at a time", "hooktrainer, one at a time"),
    targets=(
        *(
            Ratio(f"hooktrainer, {rhythm}", peer, bound)
            for rhythm in ("16 frames and steps at a time", "one at a time")
            for peer, bound in (
                ("TorchRL, SACTrainer", 1.6),
                ("Stable-Baselines3, rl-zoo", 1.2),
            )
        ),
        Ratio("hooktrainer, one at a time, compiled", "hand-written, eager", 1.0),
        Ratio("hooktrainer, one at a time, compiled", "CleanRL, sac_continuous_action.py", 1.2),
    ),
    quick=frames(300, 200),
)

_TD3 = (*SAC_FRAMES, "--algorithm=td3")

TD3 = Benchmark(
    name="td3",
    title="TD3 on Pendulum-v1: one gradient step a frame, batches of 256, 256x256 ReLU",
    cases=(
        Case("hooktrainer, one at a time", "hooktrainer_algorithms.py", (*_TD3, ONE_BY_ONE)),
        Case(
            "hooktrainer, one at a time, compiled",
            "hooktrainer_algorithms.py",
            (*_TD3, ONE_BY_ONE, "--compile=step"),
        ),
        Case("hand-written, eager", "handwritten_td3.py", SAC_FRAMES),
        Case("Stable-Baselines3, matched", "sb3.py", _TD3),
        Case("CleanRL, td3_continuous_action.py", "cleanrl.py", _TD3),
    ),
    measures=TRAINED,
    compared=("hooktrainer, one at a time", "hooktrainer, one at a time, compiled"),
    targets=(
        Ratio("hooktrainer, one at a time, compiled", "hand-written, eager", 1.0),
        Ratio("hooktrainer, one at a time, compiled", "CleanRL, td3_continuous_action.py", 1.2),
    ),
    quick=frames(300, 200),
    drawn=False,
)

SOLVE_PPO = Benchmark(
    name="solve-ppo",
    title="CartPole-v1 solved by PPO: mean return of 100 episodes ≥ 475",
    cases=(
        Case(
            "hooktrainer, its recipe",
            "hooktrainer_algorithms.py",
            solve(100_000, "--settings=tuned"),
        ),
        Case("hooktrainer, matched", "hooktrainer_algorithms.py", solve(400_000)),
        Case("hand-written, rl-zoo", "handwritten_ppo.py", solve(100_000, *ZOO_PPO)),
        Case("hand-written, matched", "handwritten_ppo.py", solve(400_000)),
        Case("TorchRL, matched", "torchrl_ppo.py", solve(400_000)),
        Case("TorchRL, rl-zoo", "torchrl_ppo.py", solve(100_000, "--settings=zoo")),
        Case("Stable-Baselines3, rl-zoo", "sb3.py", solve(100_000, "--settings=zoo")),
        Case("Stable-Baselines3, matched", "sb3.py", solve(400_000)),
        Case("CleanRL, ppo.py", "cleanrl.py", solve(500_000)),
    ),
    measures=(*TRAINING, *EVALUATION),
    compared=("hooktrainer, its recipe",),
    targets=(
        Ratio("hooktrainer, its recipe", "Stable-Baselines3, rl-zoo", 2.0),
        Ratio("hooktrainer, its recipe", "TorchRL, matched", 6.0),
        Ratio("hooktrainer, its recipe", "TorchRL, rl-zoo", 6.0),
    ),
    seeds=True,
    quick=("--frames=5000",),
)

SOLVE_DQN = Benchmark(
    name="solve-dqn",
    title="CartPole-v1 solved by DQN: mean return of 100 episodes ≥ 475",
    cases=(
        Case(
            "hooktrainer, matched", "hooktrainer_algorithms.py", solve(100_000, "--algorithm=dqn")
        ),
        Case("hand-written, matched", "handwritten_dqn.py", solve(100_000)),
        Case(
            "Stable-Baselines3, rl-zoo",
            "sb3.py",
            solve(50_000, "--algorithm=dqn", "--settings=zoo"),
        ),
        Case("CleanRL, dqn.py", "cleanrl.py", solve(100_000, "--algorithm=dqn")),
        Case(
            "TorchRL, DQNTrainer, 100 frames and steps at a time",
            "torchrl_dqn.py",
            solve(100_000, "--env=lean", "--frames-per-batch=100"),
        ),
    ),
    measures=(*EVALUATION, *TRAINING),
    compared=("hooktrainer, matched",),
    seeds=True,
    quick=("--frames=2600",),
    drawn=False,
)

SOLVE_SAC = Benchmark(
    name="solve-sac",
    title="Pendulum-v1 solved by SAC: mean return of 100 evaluation episodes ≥ -200",
    cases=(
        Case("hooktrainer, rl-zoo", "hooktrainer_algorithms.py", solve(20_000, "--algorithm=sac")),
        Case(
            "hooktrainer, rl-zoo, compiled",
            "hooktrainer_algorithms.py",
            solve(20_000, "--algorithm=sac", "--compile=step"),
        ),
        Case("hand-written, rl-zoo", "handwritten_sac.py", solve(20_000)),
        Case(
            "TorchRL, SACTrainer, 100 frames and steps at a time",
            "torchrl_sac.py",
            solve(20_000, "--frames-per-batch=100"),
        ),
        Case("Stable-Baselines3, rl-zoo", "sb3.py", solve(20_000, "--algorithm=sac")),
        Case("CleanRL, sac_continuous_action.py", "cleanrl.py", solve(20_000, "--algorithm=sac")),
    ),
    measures=EVALUATION,
    compared=("hooktrainer, rl-zoo",),
    seeds=True,
    quick=("--frames=600",),
    drawn=False,
)

SCALE_ENVS = Benchmark(
    name="envs",
    title="PPO on CartPole-v1 by number of environments: 128 steps each, 4 x 4 minibatches",
    cases=tuple(
        Case(
            f"{library}, {n} environment{'s' * (n > 1)}",
            script,
            frames(k * n + 60_000, 20_000, f"--num-envs={n}"),
        )
        for library, script, k in (
            ("hooktrainer", "hooktrainer_algorithms.py", 4_000),
            ("hand-written", "handwritten_ppo.py", 4_000),
            ("Stable-Baselines3", "sb3.py", 1_000),
        )
        for n in (1, 4, 16, 64, 256)
    ),
    measures=(*SPEED, Measure("MiB grown", ("memory_growth_mib",), higher=False)),
    rounds=3,
    quick=frames(40_000, 4_096),
    drawn=False,
)

SCALE_WIDTH = Benchmark(
    name="widths",
    title="PPO on CartPole-v1 by width of both hidden layers: 4 environments x 128 steps",
    cases=tuple(
        Case(f"{library}, {w}x{w}", script, frames(count, count // 6, f"--width={w}"))
        for library, script in (
            ("hooktrainer", "hooktrainer_algorithms.py"),
            ("hand-written", "handwritten_ppo.py"),
            ("Stable-Baselines3", "sb3.py"),
        )
        for w, count in ((64, 50_000), (256, 30_000), (1024, 6_000))
    ),
    measures=TRAINED,
    rounds=3,
    quick=frames(2_048, 1_024),
    drawn=False,
)

SCALE_REPLAY = Benchmark(
    name="replay",
    title="Replay buffers: store one transition, sample 128 (and, if prioritized, update them)",
    cases=tuple(
        Case(f"{name}, 10{power} transitions", "replay.py", (f"--size={size}", *options))
        for name, options in (
            ("hooktrainer, uniform", ("--library=hooktrainer",)),
            ("hooktrainer, memory-mapped", ("--library=hooktrainer", "--storage=memmap")),
            ("hooktrainer, prioritized", ("--library=hooktrainer", "--prioritized")),
            ("TorchRL, uniform", ("--library=torchrl",)),
            ("TorchRL, memory-mapped", ("--library=torchrl", "--storage=memmap")),
            ("TorchRL, prioritized", ("--library=torchrl", "--prioritized")),
            ("Stable-Baselines3, uniform", ("--library=sb3",)),
        )
        for power, size in (("⁴", 10**4), ("⁵", 10**5), ("⁶", 10**6), ("⁷", 10**7))
    ),
    measures=(
        Measure("steps per CPU second", ("frames_per_cpu_second",)),
        Measure("peak MiB", ("peak_memory_mib",), higher=False),
        Measure("MiB grown", ("memory_growth_mib",), higher=False),
    ),
    rounds=3,
    quick=("--frames=200",),
    drawn=False,
)

MAPPO = Benchmark(
    name="mappo",
    title="MAPPO on VMAS balance, 3 agents: 204 800 frames, and the return at their end",
    cases=(
        Case("hooktrainer", "hooktrainer_mappo.py", frames(204_800, 6_400, "--settings=own")),
        Case("hooktrainer, matched", "hooktrainer_mappo.py", frames(204_800, 6_400)),
        Case("TorchRL, matched", "torchrl_mappo.py", frames(204_800, 6_400)),
        Case(
            "TorchRL, its script's settings",
            "torchrl_mappo.py",
            frames(240_000, 60_000, "--settings=sota"),
        ),
    ),
    measures=TRAINED,
    compared=("hooktrainer", "hooktrainer, matched"),
    targets=(Ratio("hooktrainer", "TorchRL, matched", 2.0),),
    rounds=3,
    seeds=True,
    quick=("--frames=12_800", "--warmup=6_400"),
    drawn=False,
)

_SOURCES = (
    ("hooktrainer, EnvPool", ("--source=envpool",), 300_000),
    ("by hand, EnvPool", ("--source=envpool", "--by-hand"), 120_000),
    ("hooktrainer, Gymnasium", ("--source=gymnasium",), 240_000),
    ("by hand, Gymnasium, one by one", ("--source=gymnasium", "--by-hand"), 80_000),
    ("by hand, Gymnasium, arrays", ("--source=gymnasium-vector", "--by-hand"), 80_000),
)

COLLECTING = Benchmark(
    name="collecting",
    title="Collecting from CartPole-v1, no training: a policy of 64x64, EnvPool's and Gymnasium's",
    cases=tuple(
        Case(
            f"{name}, {envs} environments",
            "collecting.py",
            frames(count * envs // 8, 20_000, f"--num-envs={envs}", *options),
        )
        for envs in (8, 64)
        for name, options, count in _SOURCES
    ),
    measures=SPEED,
    compared=tuple(
        f"hooktrainer, {source}, {envs} environments"
        for envs in (8, 64)
        for source in ("EnvPool", "Gymnasium")
    ),
    targets=tuple(
        Ratio(
            f"hooktrainer, {source}, {envs} environments",
            f"by hand, {loop}, {envs} environments",
            1.0,
        )
        for envs in (8, 64)
        for source, loop in (("EnvPool", "EnvPool"), ("Gymnasium", "Gymnasium, arrays"))
    ),
    quick=frames(30_000, 10_000),
    drawn=False,
)

COLLECTING_ATARI = Benchmark(
    name="collecting-atari",
    title="Collecting from Pong, 8 games, no training: random actions, EnvPool's and Gymnasium's",
    cases=tuple(
        Case(name, "collecting.py", frames(count, 2_048, "--env=pong", *options))
        for name, options, count in (
            ("hooktrainer, EnvPool", ("--source=envpool",), 20_000),
            ("by hand, EnvPool", ("--source=envpool", "--by-hand"), 20_000),
            ("hooktrainer, Gymnasium", ("--source=gymnasium",), 20_000),
            ("by hand, Gymnasium, one by one", ("--source=gymnasium", "--by-hand"), 20_000),
        )
    ),
    measures=SPEED,
    compared=("hooktrainer, EnvPool", "hooktrainer, Gymnasium"),
    rounds=3,
    quick=frames(3_072, 1_024),
    drawn=False,
)

BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        LOOP,
        PPO,
        ATARI,
        PPO64,
        WORLDS,
        WORLDS1024,
        MAPPO,
        COLLECTING,
        COLLECTING_ATARI,
        DQN,
        SAC,
        TD3,
        SOLVE_PPO,
        SOLVE_DQN,
        SOLVE_SAC,
        SCALE_ENVS,
        SCALE_WIDTH,
        SCALE_REPLAY,
    )
}
