"""What one frame, one weight sync and one gradient exchange cost here, for docs/scaling.md.

    python benchmarks/scaling_costs.py --output benchmarks/results/scaling.json

Each figure is the median of several rounds. It takes about two minutes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import platform
import socket
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from hooktrainer import MiniBatches, Trainer, ValueEstimatorHook, VectorCollector
from hooktrainer.networks import CategoricalPolicy, ValueNetwork, mlp
from hooktrainer.objectives import GAE, ClipPPOLoss
from hooktrainer.optim import FlatAdam
from hooktrainer.run import Place, Ranks
from hooktrainer.store import rng_state

PARAMETERS = (10_000, 100_000, 1_000_000, 10_000_000)
ROUNDS = 7


def median_seconds(call: Callable[[], Any], calls: int = 1, rounds: int = ROUNDS) -> float:
    """Seconds of one call: the median over rounds of a few calls each."""
    call()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        seconds.append((time.perf_counter() - start) / calls)
    return statistics.median(seconds)


def policy(width: int = 64) -> CategoricalPolicy:
    return CategoricalPolicy(mlp(4, 2, num_cells=(width, width)))


def frames() -> dict[str, float]:
    """Microseconds that a frame of CartPole takes to collect, and to optimize on with PPO."""
    found = {}
    for num_envs in (16, 64):
        collector = VectorCollector(
            "CartPole-v1", policy(), num_envs=num_envs, frames_per_batch=num_envs * 64
        )
        found[f"collect, {num_envs} environments"] = (
            median_seconds(collector.collect) / (num_envs * 64) * 1e6
        )
        collector.shutdown()
    actor, critic = policy(), ValueNetwork(mlp(4, 1))
    loss = ClipPPOLoss(actor, critic)
    collector = VectorCollector("CartPole-v1", actor, num_envs=16, frames_per_batch=1024)
    trainer = Trainer(
        collector=collector,
        total_frames=1,
        num_epochs=10,
        optim_steps_per_batch=None,
        loss_module=loss,
        optimizer=FlatAdam(loss.parameters(), lr=1e-3),
        progress_bar=False,
    )
    ValueEstimatorHook(GAE(gamma=0.99, lmbda=0.95, value_network=critic)).register(trainer)
    MiniBatches(256, loss.in_keys).register(trainer)
    batch = trainer.registry.points["batch_process"](collector.collect())

    def optimize() -> None:
        trainer.progress.batches += 1
        trainer.optim_steps(batch)

    found["optimize, 10 epochs of 4 mini-batches"] = median_seconds(optimize) / 1024 * 1e6
    trainer.shutdown()
    return found


def weights() -> dict[str, Any]:
    """Milliseconds to publish weights to Ray's store, and for a batch with as good as no work."""
    import ray

    from hooktrainer.collect.collector import weights_of
    from hooktrainer.collect.messages import pack, unpack
    from hooktrainer.run import Cluster, RayCollector

    cluster = Cluster(2)  # which the collectors find, and do not end
    found: dict[str, Any] = {"publish, ms": {}, "take up, ms": {}}
    for number in PARAMETERS:
        network = torch.nn.Linear(number // 100, 100, bias=False)
        kept: list[Any] = []

        def publish(network: Any = network, kept: list[Any] = kept) -> None:
            kept[:] = [ray.put(pack(weights_of(network)))]

        def take_up(network: Any = network, kept: list[Any] = kept) -> None:
            network.load_state_dict(unpack(ray.get(kept[0])))

        found["publish, ms"][number] = median_seconds(publish) * 1e3
        found["take up, ms"][number] = median_seconds(take_up) * 1e3
    for workers in (1, 2):
        collector = VectorCollector("CartPole-v1", policy(), num_envs=2, frames_per_batch=2)
        remote = RayCollector(collector, Place(count=workers), Cluster(2))
        found[f"a batch of 2 frames, {workers} processes, ms"] = (
            median_seconds(remote.collect, 20) * 1e3
        )
        remote.shutdown()
    collector = VectorCollector("CartPole-v1", policy(), num_envs=64, frames_per_batch=64 * 256)
    remote = RayCollector(collector, Place(count=2), Cluster(2))
    found["a frame of a batch of 16384, 2 processes, us"] = (
        median_seconds(remote.collect) / 16384 * 1e6
    )
    remote.shutdown()
    cluster.close()
    return found


def exchange(rank: int, port: int, results: Any) -> None:
    """What a rank measures."""
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    ranks = Ranks(rank, 2)
    found: dict[str, Any] = {"gradients, ms": {}}
    for number in PARAMETERS:
        gradient = torch.zeros(number)
        calls = max(1, 200_000 // number)

        def average(gradient: torch.Tensor = gradient) -> None:
            ranks.average([gradient])

        found["gradients, ms"][number] = median_seconds(average, calls) * 1e3
    found["meeting, ms"] = (
        median_seconds(lambda: ranks.all_gather("the end of a batch", None), 50) * 1e3
    )
    window = {f"metric/{i}": float(i) for i in range(30)}
    place = "the end of a log window"
    found["log window of 30 metrics, ms"] = (
        median_seconds(lambda: ranks.all_gather(place, window), 10) * 1e3
    )
    share = rng_state()
    found["random state to a checkpoint, ms"] = (
        median_seconds(lambda: ranks.gather("a checkpoint", share), 10) * 1e3
    )
    if rank == 0:
        results.put(found)
    ranks.close()


def gradients() -> dict[str, Any]:
    """Milliseconds that two processes of this machine take to exchange what learners exchange."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    context = mp.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=exchange, args=(r, port, results)) for r in range(2)]
    for process in processes:
        process.start()
    found: dict[str, Any] = results.get(timeout=300)
    for process in processes:
        process.join()
    return found


def rounded(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {str(key): rounded(value) for key, value in tree.items()}
    return float(f"{tree:.3g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="file for the figures, as JSON")
    args = parser.parse_args()
    torch.set_num_threads(1)
    costs = rounded({"frame, us": frames(), "ranks": gradients(), "ray": weights()})
    costs["machine"] = f"{os.cpu_count()} cores, {platform.machine()}, torch {torch.__version__}"
    text = json.dumps(costs, indent=2) + "\n"
    print(text, end="")
    if args.output is not None:
        args.output.write_text(text)


if __name__ == "__main__":
    main()
