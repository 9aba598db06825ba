"""Measure checkpoints side by side with the disk's own limit and with other libraries.

    .bench-venv/bin/python benchmarks/checkpoint.py             # 1 GiB; 20 000 tensors
    .bench-venv/bin/python benchmarks/checkpoint.py --quick     # a short check that all of it runs

Every row saves the same tensors to the same disk, in rounds, each in another order, and
everything is shown as a ratio to the raw write and flush of the same bytes in the same run: disks
are noisy. What a library does not flush itself is flushed for it, and timed, before its checkpoint
counts as durable. Rows of libraries that are not installed are left out.
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import tyro
from results import finite, machine, versions
from rich.console import Console
from rich.table import Table

from hooktrainer.store import All, CheckpointManager, Last

HERE = Path(__file__).parent
Tensors = dict[str, torch.Tensor]
MIB = 1 << 20
PEERS = ("safetensors", "torchsnapshot")
RAW = "raw write + flush"
NATIVE = "hooktrainer native"
BACKGROUND = "hooktrainer native, background"


@dataclass(frozen=True)
class Target:
    """What one of hooktrainer's figures shall reach.

    Attributes:
        part: the part of the benchmark.
        row: hooktrainer's row.
        column: the figure.
        bound: what its median shall not exceed.
        against: the row and column it is a ratio to, round by round; none: it is one by itself.
    """

    part: str
    row: str
    column: str
    bound: float
    against: tuple[str, str] | None = None


TARGETS = (
    Target("large", NATIVE, "durable", 1.25, (RAW, "durable")),
    Target("large", BACKGROUND, "durable", 1.25, (RAW, "durable")),
    Target("large", BACKGROUND, "blocked", 0.25, (RAW, "durable")),
    Target("stall", BACKGROUND, "stall", 0.7, ("torch.save", "stall")),
    Target("many", NATIVE, "durable", 4.0, (RAW, "durable")),
    Target("many", BACKGROUND, "durable", 4.0, (RAW, "durable")),
    Target("many", BACKGROUND, "cold load", 0.2),
    Target("agent", NATIVE, "durable", 1.2, ("torch.save", "durable")),
    Target("agent", BACKGROUND, "durable", 1.2, ("torch.save", "durable")),
    Target("replay", NATIVE, "time", 0.1),
    Target("replay", BACKGROUND, "time", 0.1),
    Target("replay", BACKGROUND, "bytes", 0.03),
)


@dataclass(kw_only=True)
class Args:
    """Options of the checkpoint benchmark."""

    mib: int = 1024
    """size of the large state and of the replay buffer, in MiB"""
    tensors: int = 20_000
    """number of tensors of 1 KiB in the other state"""
    rounds: int = 5
    """rounds; medians are shown"""
    directory: Path = Path()
    """where to write: the disk that is measured"""
    rows: str = ""
    """run only the rows whose name contains this; raw and torch.save always run"""
    results: Path = HERE / "results"
    """where the JSON goes"""
    quick: bool = False
    """a short check that everything runs; its figures mean nothing and are not saved"""


class Way:
    """One way to save tensors. Each save goes to a new path."""

    flushes = False
    """Whether a save that ended is durable already."""

    def save(self, path: Path, tensors: Tensors) -> None:
        """Save; return as soon as training could go on."""

    def finish(self) -> None:
        """Wait for what `save` left to the background."""

    def load(self, path: Path, tensors: Tensors) -> Any:
        """Load into new memory. ``tensors`` has the names and shapes."""

    def close(self) -> None:
        """Let go of everything."""


class Raw(Way):
    """The bytes of one tensor after the other in one file, without names, shapes or checks."""

    flushes = True

    def save(self, path: Path, tensors: Tensors) -> None:
        path.mkdir()
        with open(path / "raw", "wb") as file:
            for tensor in tensors.values():
                file.write(tensor.numpy().data)
            file.flush()
            os.fsync(file.fileno())

    def load(self, path: Path, tensors: Tensors) -> Any:
        with open(path / "raw", "rb") as file:
            for tensor in tensors.values():
                file.readinto(torch.empty_like(tensor).numpy().data.cast("B"))


class Ours(Way):
    flushes = True

    def __init__(self, backend: str, background: bool, root: Path) -> None:
        self.manager = CheckpointManager(
            root / f"{backend}-{background}", backend=backend, background=background, keep=All()
        )
        self.frames = 0

    def save(self, path: Path, tensors: Tensors) -> None:
        self.frames += 1
        self.manager.save(tensors, frames=self.frames)

    def finish(self) -> None:
        self.manager.wait()

    def load(self, path: Path, tensors: Tensors) -> Any:
        return self.manager.load()[1]

    def clean(self) -> None:
        """Note how many bytes are new in the latest checkpoint, and delete the ones before."""
        path = self.manager.checkpoints()[-1].path
        files = [file.stat() for file in path.rglob("*") if file.is_file()]
        self.written = sum(stat.st_size for stat in files if stat.st_nlink == 1)
        self.manager.keep = Last(1)
        self.manager.prune()
        self.manager.keep = All()

    def close(self) -> None:
        self.manager.close()
        shutil.rmtree(self.manager.directory)


class TorchSave(Way):
    def save(self, path: Path, tensors: Tensors) -> None:
        path.mkdir()
        torch.save(tensors, path / "x.pt")

    def load(self, path: Path, tensors: Tensors) -> Any:
        return torch.load(path / "x.pt", weights_only=True)


class Safetensors(Way):
    def save(self, path: Path, tensors: Tensors) -> None:
        from safetensors.torch import save_file

        path.mkdir()
        save_file(tensors, path / "x.safetensors")

    def load(self, path: Path, tensors: Tensors) -> Any:
        from safetensors.torch import load_file

        return {name: x.clone() for name, x in load_file(path / "x.safetensors").items()}


class TorchSnapshot(Way):
    def __init__(self, background: bool) -> None:
        from torchsnapshot import Snapshot, StateDict

        self.library, self.wrap = Snapshot, StateDict
        self.take = Snapshot.async_take if background else Snapshot.take

    def save(self, path: Path, tensors: Tensors) -> None:
        self.pending = self.take(str(path), {"s": self.wrap(**tensors)})

    def finish(self) -> None:
        if hasattr(self.pending, "wait"):
            self.pending.wait()

    def load(self, path: Path, tensors: Tensors) -> Any:
        state = self.wrap(**{name: torch.empty_like(x) for name, x in tensors.items()})
        self.library(str(path)).restore({"s": state})
        return state


class Distributed(Way):
    def __init__(self, background: bool) -> None:
        import torch.distributed.checkpoint as dcp

        self.dcp, self.background = dcp, background
        self.pending: Any = None

    def save(self, path: Path, tensors: Tensors) -> None:
        save = self.dcp.async_save if self.background else self.dcp.save
        self.pending = save(tensors, checkpoint_id=str(path))

    def finish(self) -> None:
        if self.background:
            self.pending.result()

    def load(self, path: Path, tensors: Tensors) -> Any:
        state = {name: torch.empty_like(x) for name, x in tensors.items()}
        self.dcp.load(state, checkpoint_id=str(path))
        return state


class Memmap(Way):
    def save(self, path: Path, tensors: Tensors) -> None:
        from tensordict import TensorDict

        TensorDict(tensors).memmap(str(path))

    def load(self, path: Path, tensors: Tensors) -> Any:
        from tensordict import TensorDict

        return TensorDict.load_memmap(str(path)).clone()


class TorchRL(Way):
    def save(self, path: Path, tensors: Tensors) -> None:
        self._checkpoint(tensors).save(path)

    def load(self, path: Path, tensors: Tensors) -> Any:
        state = {name: torch.empty_like(x) for name, x in tensors.items()}
        return self._checkpoint(state).load(path)

    def _checkpoint(self, tensors: Tensors) -> Any:
        from torchrl.checkpoint import Checkpoint

        class State:
            def state_dict(self) -> Tensors:
                return tensors

            def load_state_dict(self, state: Tensors) -> None:
                for name, value in state.items():
                    tensors[name].copy_(value)

        checkpoint = Checkpoint()
        checkpoint.register("state", State())
        return checkpoint


def make_ways(root: Path, wanted: str) -> dict[str, Way]:
    """Return the rows by name."""
    makers: dict[str, tuple[str, Callable[[], Way]]] = {
        RAW: ("torch", Raw),
        NATIVE: ("torch", lambda: Ours("native", False, root)),
        BACKGROUND: ("torch", lambda: Ours("native", True, root)),
        "hooktrainer torch": ("torch", lambda: Ours("torch", False, root)),
        "hooktrainer torch, background": ("torch", lambda: Ours("torch", True, root)),
        "hooktrainer torchsnapshot": ("torchsnapshot", lambda: Ours("torchsnapshot", False, root)),
        "torch.save": ("torch", TorchSave),
        "safetensors": ("safetensors", Safetensors),
        "torchsnapshot": ("torchsnapshot", lambda: TorchSnapshot(False)),
        "torchsnapshot, async": ("torchsnapshot", lambda: TorchSnapshot(True)),
        "torch.distributed.checkpoint": ("torch", lambda: Distributed(False)),
        "torch.distributed.checkpoint, async": ("torch", lambda: Distributed(True)),
        "TensorDict memmap": ("tensordict", Memmap),
        "torchrl Checkpoint": ("torchrl.checkpoint", TorchRL),
    }
    return {
        name: make()
        for name, (package, make) in makers.items()
        if _installed(package) and (wanted in name or name in (RAW, "torch.save"))
    }


def _installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def flush(path: Path) -> None:
    """Flush all files and directories under a path, as a careful user of a library would."""
    for item in [path.parent, path, *path.rglob("*")] if path.exists() else []:
        fd = os.open(item, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def forget(path: Path) -> None:
    """Drop the files under a path from the page cache, so that a load reads the disk."""
    for item in path.rglob("*"):
        if item.is_file():
            fd = os.open(item, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


@contextmanager
def peak_memory(figures: dict[str, float]) -> Iterator[None]:
    """Record by how much the resident memory of this process rises at most."""
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again from here
    yield
    figures["peak MiB"] = (_status("VmHWM") - before) / MIB


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(key)))


@dataclass
class Results:
    """Figures of all rounds by row and column."""

    rows: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, row: str, figures: dict[str, float]) -> None:
        for column, value in figures.items():
            self.rows.setdefault(row, {}).setdefault(column, []).append(value)

    def reached(self, target: Target) -> float | None:
        """Return the median over the rounds, or `None` if a row is missing."""
        values = self.rows.get(target.row, {}).get(target.column)
        if target.against is not None and values:
            others = self.rows.get(target.against[0], {}).get(target.against[1])
            values = [a / b for a, b in zip(values, others, strict=True)] if others else None
        return statistics.median(values) if values else None

    def medians(self) -> dict[str, dict[str, float]]:
        return {
            row: {column: statistics.median(values) for column, values in columns.items()}
            for row, columns in self.rows.items()
        }


def measure(way: Way, path: Path, tensors: Tensors, *, load: bool) -> dict[str, float]:
    """Save once, and load once from a cold cache."""
    figures: dict[str, float] = {}
    with peak_memory(figures):
        start = time.perf_counter()
        way.save(path, tensors)
        figures["blocked"] = time.perf_counter() - start
        way.finish()
        if not way.flushes:
            flush(path)
        figures["durable"] = time.perf_counter() - start
    if load:
        forget(way.manager.directory if isinstance(way, Ours) else path)
        start = time.perf_counter()
        way.load(path, tensors)
        figures["cold load"] = time.perf_counter() - start
    if isinstance(way, Ours):
        way.clean()
    shutil.rmtree(path, ignore_errors=True)
    return figures


def rounds_of(ways: dict[str, Way], rounds: int) -> Iterator[tuple[int, str, Way]]:
    """Yield each row once a round, in a new order, as one may slow the next. Round 0 warms up."""
    shuffled = random.Random(0)
    for round_ in range(rounds + 1):
        for name in shuffled.sample(list(ways), len(ways)):
            yield round_, name, ways[name]


def saving(root: Path, args: Args, tensors: Tensors, *, load: bool) -> Results:
    """Every row saves (and loads) one state, all of which changes from save to save."""
    results = Results()
    ways = make_ways(root, args.rows)
    for round_, name, way in rounds_of(ways, args.rounds):
        for tensor in tensors.values():
            tensor.add_(1)
        figures = measure(way, root / f"save-{round_}", tensors, load=load)
        if round_:
            results.add(name, figures)
    for way in ways.values():
        way.close()
    return results


def stalling(root: Path, args: Args, tensors: Tensors) -> Results:
    """What a training loop of a fixed number of steps loses to one save."""
    results = Results()
    weight = torch.randn(256, 256)
    steps = 200 if args.quick else 12_000

    def loop() -> float:
        start = time.perf_counter()
        x = torch.randn(64, 256)
        for _ in range(steps):
            x = torch.tanh(x @ weight)
        return time.perf_counter() - start

    ways = make_ways(root, args.rows)
    for round_, name, way in rounds_of(ways, args.rounds):
        for tensor in tensors.values():
            tensor.add_(1)
        alone = loop()
        start = time.perf_counter()
        way.save(root / f"stall-{round_}", tensors)
        loop()
        both = time.perf_counter() - start
        way.finish()
        if isinstance(way, Ours):
            way.clean()
        shutil.rmtree(root / f"stall-{round_}", ignore_errors=True)
        if round_:
            results.add(name, {"stall": both - alone})
    for way in ways.values():
        way.close()
    return results


def replay(root: Path, args: Args) -> Results:
    """A replay buffer of which one percent is new at every save after the first."""
    results = Results()
    capacity = args.mib * MIB // 256
    buffer = {
        "observation": torch.randn(capacity, 30),
        "next": torch.randn(capacity, 30),
        "action": torch.randn(capacity, 2),
        "reward": torch.randn(capacity, 1),
        "done": torch.zeros(capacity, 1, dtype=torch.int32),
    }
    new = max(1, capacity // 100)
    for round_ in range(args.rounds + 1):
        ways = {
            NATIVE: Ours("native", False, root),
            BACKGROUND: Ours("native", True, root),
            "torch.save": TorchSave(),
        }
        for name, way in ways.items():
            full = measure(way, root / "replay", buffer, load=False)
            for i in (1, 2):  # the first of them finds the memory of the copy in place
                for tensor in buffer.values():
                    tensor[i * new : (i + 1) * new] += 1
                part = measure(way, root / "replay", buffer, load=False)
            figures = {"full": full["durable"], "1 % new": part["durable"]}
            figures["time"] = part["durable"] / full["durable"]
            figures["blocked"] = part["blocked"]
            if isinstance(way, Ours):
                figures["bytes"] = way.written / sum(x.nbytes for x in buffer.values())
            if round_:
                results.add(name, figures)
            way.close()
    return results


def show(console: Console, title: str, results: Results, unit: str | None) -> None:
    """Print a table of medians; times as ratios to those of the row ``unit`` when durable."""
    medians = results.medians()
    base = medians[unit]["durable"] if unit else 1.0
    columns = list(next(iter(medians.values())))
    for row in medians.values():
        columns += [column for column in row if column not in columns]
    table = Table("", *columns, title=title, title_justify="left")
    for name, row in medians.items():
        cells = []
        for column in columns:
            value = row.get(column)
            if value is None:
                cells.append("")
            elif column in ("peak MiB", "time", "bytes"):
                cells.append(f"{value:,.0f}" if column == "peak MiB" else f"{value:.3f}")
            else:
                cells.append(
                    f"{value * 1000:,.0f} ms" + (f" {value / base:6.2f} x" if unit else "")
                )
        table.add_row(name, *cells)
    console.print(table)


def main(args: Args) -> None:
    """Run everything."""
    if args.quick:
        args.mib, args.tensors, args.rounds = 16, 200, 1
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    console = Console()
    parts: dict[str, Results] = {}
    with tempfile.TemporaryDirectory(dir=args.directory, prefix="checkpoint-bench-") as name:
        root = Path(name)
        large = {f"layer{i}": torch.randn(args.mib * MIB // 16) for i in range(4)}
        parts["large"] = results = saving(root, args, large, load=True)
        show(console, f"{args.mib} MiB in 4 tensors (x raw)", results, RAW)
        parts["stall"] = results = stalling(root, args, large)
        show(console, f"what a training loop loses to a save of {args.mib} MiB", results, None)
        del large
        many = {f"hook/layer{i}": torch.randn(256) for i in range(args.tensors)}
        parts["many"] = results = saving(root, args, many, load=True)
        show(console, f"{args.tensors} tensors of 1 KiB (x raw)", results, RAW)
        agent = {f"net/{i}": torch.randn(256, 256) for i in range(16)}
        parts["agent"] = results = saving(root, args, agent, load=True)
        show(console, "an agent of 4 MiB (x torch.save, durable)", results, "torch.save")
        parts["replay"] = results = replay(root, args)
        show(console, f"a replay buffer of {args.mib} MiB, 1 % new", results, None)
    show_targets(console, parts)
    if not args.quick:
        console.print(f"saved in {save(args, parts)}")


def show_targets(console: Console, parts: dict[str, Results]) -> None:
    """Print what was to be reached, and what was."""
    table = Table("part", "row", "figure", "target", "measured", title="targets")
    for target in TARGETS:
        value = parts[target.part].reached(target)
        of = f" / {target.against[0]}" if target.against else ""
        measured = "not measured" if value is None else f"{value:.3f}"
        if value is not None and value > target.bound:
            measured += ", falls short"
        table.add_row(target.part, target.row, target.column + of, f"<= {target.bound:g}", measured)
    console.print(table)


def save(args: Args, parts: dict[str, Results]) -> Path:
    """Write ``checkpoint.json`` and return its path. Times are in seconds."""
    data = {
        "benchmark": "checkpoint",
        "title": f"Saving {args.mib} MiB, {args.tensors} tensors of 1 KiB, an agent of 4 MiB and "
        "a replay buffer, compared with the disk's own limit and other libraries",
        "measured": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": machine(),
        "versions": versions() | {name: version(name) for name in PEERS if _installed(name)},
        "options": {key: getattr(args, key) for key in ("mib", "tensors", "rounds", "rows")},
        "parts": {
            part: {
                row: {
                    "median": {c: finite(v) for c, v in results.medians()[row].items()},
                    "rounds": {c: [finite(v) for v in values] for c, values in columns.items()},
                }
                for row, columns in results.rows.items()
            }
            for part, results in parts.items()
        },
        "targets": [
            {**asdict(target), "measured": finite(value), "met": value <= target.bound}
            for target in TARGETS
            if (value := parts[target.part].reached(target)) is not None
        ],
    }
    args.results.mkdir(parents=True, exist_ok=True)
    path = args.results / "checkpoint.json"
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
