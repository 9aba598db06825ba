"""Targets: the files of a run, of a data set, of a sampler, and the states of environments."""

from __future__ import annotations

import io
import json
import random
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import yaml
from mutate import TEXTS, mutate_bytes, mutate_json, mutate_tree
from target import Files, Target, read, spoil_place
from tensordict import TensorDict

from hooktrainer.cli.describe import describe
from hooktrainer.cli.runs import runs
from hooktrainer.collectors.codec import dumps, loads
from hooktrainer.datasets import Dataset, load_dataset
from hooktrainer.errors import ConfigError
from hooktrainer.loggers.csv import read_csv
from hooktrainer.loggers.events import Scalars
from hooktrainer.loggers.tensorboard import TensorBoardSink, read_scalars
from hooktrainer.replay import PrioritizedSampler
from hooktrainer.report import MetricsTail, comparison_page, group_runs, summarize
from hooktrainer.run_dir import RunDir
from hooktrainer.untrusted import MalformedError

CONFIG = {
    "env": "CartPole-v1",
    "total_frames": 1000,
    "lr": 3e-4,
    "seed": 1,
    "hidden": [64, 64],
    "nested": {"a": None, "b": True, "c": "text"},
}
HOOKS = [
    {
        "point": "batch_process",
        "kind": "transform",
        "hook": "replay_buffer",
        "when": "always",
        "priority": 0,
        "module": "replay_buffer",
        "saves": ["storage", "writer"],
    },
    {
        "point": "post_steps",
        "kind": "action",
        "hook": "recorder",
        "when": "Every(seconds=1.0)",
        "priority": 1.5,
        "module": None,
        "saves": [],
    },
]


def _run() -> Files:
    with tempfile.TemporaryDirectory() as place:
        run = RunDir.create(Path(place) / "run", experiment="ppo", seed=1)
        run.write_config(CONFIG)
        run.hooks_file.write_text(json.dumps(HOOKS, indent=1))
        run.metrics.write_text(
            "step,name,value\n"
            + "".join(f"{n},eval/return,{n / 3!r}\n{n},loss/x,nan\n" for n in range(0, 1000, 50))
        )
        run.update(status="finished", frames=1000, metrics={"eval/return": 1.5, "x": float("nan")})
        files = read(run.path)
        state = json.loads(files["run.json"])  # type: ignore[arg-type]
        state |= {"started": "2026-01-01T00:00:00+00:00", "updated": "2026-01-01T00:00:01+00:00"}
        state |= {"pid": 1, "host": "here", "cwd": "/", "command": "python x.py"}
        state |= {"run_id": "0" * 16}
        state |= {"argv": ["--seed", "1"], "versions": {"torch": "2"}, "git_commit": None}
        return {**files, "run.json": json.dumps(state).encode()}


def _only(name: str, spoil: Callable[[Any, random.Random], bytes]) -> Callable[..., None]:
    """Spoils one of the files of a run."""

    def spoil_one(files: Files, rng: random.Random) -> None:
        if rng.random() < 0.06:
            one = {name: files.pop(name)}
            spoil_place(one, rng)
            files.update(one)
        else:
            files[name] = spoil(files[name], rng)

    return spoil_one


def _spoil_yaml(data: Any, rng: random.Random) -> bytes:
    kind = rng.randrange(10)
    if kind == 0:
        return mutate_bytes(data, rng)
    if kind == 1:
        lines = data.decode().splitlines(keepends=True)
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(_YAML))
        return "".join(lines).encode("utf-8", "surrogatepass")
    if kind == 2:
        depth = rng.choice((50, 3000))
        return b"a: " + b"[" * depth + b"]" * depth
    if kind == 3:
        text = data.decode()
        place = text.find(": ", rng.randrange(len(text))) + 2
        return (text[:place] + rng.choice(_TAGS) + text[place:]).encode("utf-8", "replace")
    try:
        changed = mutate_tree(yaml.safe_load(data), rng)
        return yaml.safe_dump(changed, allow_unicode=rng.random() < 0.5).encode("utf-8", "replace")
    except (yaml.YAMLError, ValueError, RecursionError):
        return mutate_bytes(data, rng)


_TAGS = (
    *(
        "!!python/object/apply:os.system ",
        "!!python/name:os.system ",
        "!!int ",
        "!!float ",
        "!!set ",
    ),
    *(
        "!!timestamp ",
        "!!binary ",
        "!!omap ",
        "!!pairs ",
        "!!bool ",
        "!!null ",
        "&a ",
        "*a ",
        "!x ",
    ),
    *("!!python/tuple ", "!!merge ", "? ", "- ", "| ", "> ", "%YAML 9.9\n---\n", "<<: "),
)
_YAML = (
    *(
        "x: &x [*x]\n",
        "<<: *missing\n",
        "<<: {a: 1}\n",
        "? [1, 2]\n: 3\n",
        "? {a: b}\n: c\n",
        "- a\n",
    ),
    *("x: 2026-99-99\n", "x: 1:99:99\n", "x: 0x" + "f" * 5000 + "\n", "x: " + "9" * 5000 + "\n"),
    *(
        "x: .nan\n",
        "x: !!timestamp zz\n",
        "x: !!int x\n",
        "x: !!binary '*'\n",
        "\t\n",
        "---\n",
        "...\n",
    ),
    "b0: &b0 [x]\n"
    + "".join(f"b{n}: &b{n} [{', '.join([f'*b{n - 1}'] * 8)}]\n" for n in range(1, 9)),
    "x: \x1b[31m\n",
)


def _spoil_csv(data: Any, rng: random.Random) -> bytes:
    if rng.random() < 0.4:
        return mutate_bytes(data, rng)
    lines = data.decode().split("\n")
    for _ in range(rng.choice((1, 2))):
        place = rng.randrange(len(lines))
        cells = lines[place].split(",")
        cell = rng.randrange(len(cells))
        cells[cell] = rng.choice(
            (*TEXTS, '"', '"a"', 'a"b', "1_0", "٣", " 5 ", "9" * 5000, "1e400")
        )
        lines[place] = ",".join(cells)
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _open_run(place: Path) -> Any:
    """Everything that looks at a run."""
    run = RunDir(place)
    found = [run.read(), run.read_config(), _plain(summarize(run)), run.run_id]
    runs((place,), metric=("eval/return",), curves=True)
    runs((place,), json=True)
    comparison_page(group_runs([summarize(run)]), ["eval/return"])
    return found


def _plain(summary: Any) -> list[Any]:
    return [str(vars(summary)[name]) for name in ("status", "frames", "last", "best", "seed")]


def _open_hooks(place: Path) -> Any:
    describe(str(place))
    return RunDir(place).read_hooks()


def _open_metrics(place: Path) -> Any:
    tail = MetricsTail(place / "metrics.csv")
    tail.update()
    return [read_csv(place), tail.curves]


def _events() -> Files:
    with tempfile.TemporaryDirectory() as place:
        sink = TensorBoardSink(Path(place))
        for step in range(20):
            sink.write_scalars(Scalars({"eval/return": float(step), "loss": 0.5}, step))
        sink.close()
        return {"events.out.tfevents.1.x": next(iter(read(Path(place)).values()))}


def _spoil_events(files: Files, rng: random.Random) -> None:
    for name in files:
        files[name] = mutate_bytes(files[name], rng)  # type: ignore[arg-type]


def _dataset() -> Files:
    steps = 20
    transitions = TensorDict(
        {
            "observation": torch.rand(steps, 3),
            "action": torch.arange(steps),
            "next": {
                "observation": torch.rand(steps, 3),
                "reward": torch.rand(steps, 1),
                "terminated": torch.zeros(steps, 1, dtype=torch.bool),
                "truncated": torch.zeros(steps, 1, dtype=torch.bool),
            },
        },
        [steps],
    )
    with tempfile.TemporaryDirectory() as place:
        Dataset(transitions, [1.0, 2.5], "Pendulum-v1", "made").save(Path(place) / "data")
        return read(Path(place) / "data")


def _spoil_dataset(files: Files, rng: random.Random) -> None:
    kind = rng.randrange(10)
    if kind == 0:
        spoil_place(files, rng)
        return
    name = "dataset.json"
    if kind > 5:
        name = rng.choice([name for name in sorted(files) if name.endswith(".npy")])
    data = files[name]
    if not isinstance(data, bytes):
        return
    files[name] = mutate_json(data, rng) if name == "dataset.json" else _spoil_array(data, rng)
    if name != "dataset.json" and rng.random() < 0.7:  # what dataset.json says of it then
        about = json.loads(files["dataset.json"])  # type: ignore[arg-type]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                array = np.lib.format.open_memmap
                del array
                shape, dtype = _header(files[name])  # type: ignore[arg-type]
        except Exception:  # there is nothing to say
            return
        about["entries"][name.removesuffix(".npy")] = {"dtype": str(dtype), "shape": list(shape)}
        if rng.random() < 0.3 and shape:
            about["transitions"] = shape[0]
        files["dataset.json"] = json.dumps(about).encode()


def _header(data: bytes) -> tuple[Any, Any]:
    file = io.BytesIO(data)
    np.lib.format.read_magic(file)
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    return shape, dtype


def _spoil_array(data: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.3:
        return mutate_bytes(data, rng)
    end = 10 + int.from_bytes(data[8:10], "little")
    header = data[10:end].decode("latin1")
    shapes = (
        "(20,)",
        "(20, 3)",
        "(-1,)",
        "(99999999999,)",
        "(2**40,)",
        "()",
        "(4611686018427387904, 4)",
    )
    types = ("'<f4'", "'|O'", "'<f8'", "[('a', '<f4')]", "'|V4'", "'<U3'", "'|S0'", "('<f4', (2,))")
    if rng.random() < 0.5:
        start = header.find("'shape': ") + 9
        header = header[:start] + rng.choice(shapes) + header[header.find(")", start) + 1 :]
    else:
        start = header.find("'descr': ") + 9
        header = header[:start] + rng.choice(types) + header[header.find(",", start) :]
    coded = header.encode("latin1")
    return data[:8] + len(coded).to_bytes(2, "little") + coded + data[end:]


def _open_dataset(place: Path) -> Any:
    data = load_dataset(place)
    return [data.transitions, data.returns, data.env, data.description, repr(data)]


def _sampler() -> Files:
    with tempfile.TemporaryDirectory() as place:
        made = PrioritizedSampler(50, 0.7, 0.5)
        made.extend(range(20))
        made.update_priority(torch.arange(20), torch.rand(20))
        made.dumps(place)
        return read(Path(place))


def _spoil_sampler(files: Files, rng: random.Random) -> None:
    if rng.random() < 0.1:
        spoil_place(files, rng)
    elif rng.random() < 0.6:
        files["sampler.json"] = mutate_json(files["sampler.json"], rng)  # type: ignore[arg-type]
    else:
        files["weights.npy"] = _spoil_array(files["weights.npy"], rng)  # type: ignore[arg-type]


def _open_sampler(place: Path) -> Any:
    made = PrioritizedSampler(50, 0.7, 0.5)
    made.loads(place)
    return made.state_dict()


def _state() -> Any:
    whole = np.arange(12.0)
    return {
        "numbers": [1, 2.5, None, True, "text", float("inf"), (1, 2)],
        "array": whole,
        "view": whole[2:8].reshape(2, 3),
        "fortran": np.asfortranarray(np.ones((2, 3), np.float32)),
        "scalar": np.float32(2),
        "pcg": np.random.default_rng(0),
        "mt": np.random.Generator(np.random.MT19937(0)),
        "philox": np.random.Generator(np.random.Philox(0)),
        "moments": gym.wrappers.utils.RunningMeanStd(shape=(3,)),
    }


def _environment() -> Files:
    return {"state.json": dumps([_state()]).encode()}


def _spoil_environment(files: Files, rng: random.Random) -> None:
    files["state.json"] = mutate_json(files["state.json"], rng)  # type: ignore[arg-type]


def _open_environment(place: Path) -> Any:
    """Load it, and use what draws, where a position may be beyond the end."""
    try:
        found = loads((place / "state.json").read_text(errors="replace"), [_state()])
    except MalformedError as error:
        raise ConfigError(str(error)) from None
    drawn = [repr(x.random(700)) for x in _generators(found)]
    return [dumps(found), drawn]


def _generators(node: Any) -> list[np.random.Generator]:
    if isinstance(node, np.random.Generator):
        return [node]
    items = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [found for item in items for found in _generators(item)]


def targets() -> list[Target]:
    """The targets here."""
    return [
        Target("run.json", _run, _only("run.json", mutate_json), _open_run),
        Target("config.yaml", _run, _only("config.yaml", _spoil_yaml), _open_run),
        Target("hooks.json", _run, _only("hooks.json", mutate_json), _open_hooks),
        Target("metrics.csv", _run, _only("metrics.csv", _spoil_csv), _open_metrics),
        Target("event files", _events, _spoil_events, read_scalars),
        Target("data set", _dataset, _spoil_dataset, _open_dataset),
        Target("sampler", _sampler, _spoil_sampler, _open_sampler),
        Target("environment", _environment, _spoil_environment, _open_environment),
    ]
