"""Targets: the files of a run."""

from __future__ import annotations

import json
import random
import tempfile
import zlib
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import yaml
from harness import Files, Target, read, spoil_place
from mutate import TEXTS, mutate_bytes, mutate_json, mutate_tree

import hooktrainer.store.lookup  # noqa: F401  commands import it late: no first import in a case
from hooktrainer import RunDir
from hooktrainer.algorithms import PPO
from hooktrainer.cli.describe import describe
from hooktrainer.cli.runs import runs
from hooktrainer.errors import ConfigError
from hooktrainer.log import TensorBoardSink, read_csv, read_scalars
from hooktrainer.run.config import values_in
from hooktrainer.show import summarize
from hooktrainer.sweep import Sweep, SweepOptions
from hooktrainer.sweep.page import importances, sweep_page, trial_rows

CONFIG = {"env": "CartPole-v1", "total_frames": 1000, "lr": 3e-4, "seed": 1, "hidden": [64, 64]}
CONFIG["nested"] = {"a": None, "b": True, "c": "text"}
HOOK = {"point": "batch_process", "kind": "transform", "hook": "replay_buffer", "when": "always"}
HOOK |= {"priority": 0, "module": "replay_buffer", "saves": ["storage", "writer"]}
OTHER = {"point": "post_steps", "kind": "action", "hook": "recorder", "when": "Every(seconds=1.0)"}
HOOKS = [HOOK, {**OTHER, "priority": 1.5, "module": None, "saves": []}]


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
        with redirect_stdout(StringIO()):  # what is imported and made once
            runs((run.path,), curves=True)
        state = json.loads(files["run.json"])  # type: ignore[arg-type]
        state |= {"started": "2026-01-01T00:00:00+00:00", "updated": "2026-01-01T00:00:01+00:00"}
        state |= {
            "pid": 1,
            "host": "here",
            "cwd": "/",
            "command": "python x.py",
            "run_id": "0" * 16,
        }
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
    *("!!python/object/apply:os.system ", "!!python/name:os.system ", "!!int ", "!!float "),
    *("!!set ", "!!timestamp ", "!!binary ", "!!omap ", "!!pairs ", "!!bool ", "!!null ", "&a "),
    *("*a ", "!x ", "!!python/tuple ", "!!merge ", "? ", "- ", "| ", "> ", "<<: "),
    "%YAML 9.9\n---\n",
)
_YAML = (
    *("x: &x [*x]\n", "<<: *missing\n", "<<: {a: 1}\n", "? [1, 2]\n: 3\n", "? {a: b}\n: c\n"),
    *("x: 2026-99-99\n", "x: 1:99:99\n", "x: 0x" + "f" * 5000 + "\n", "x: " + "9" * 5000 + "\n"),
    *("x: .nan\n", "x: !!timestamp zz\n", "x: !!int x\n", "x: !!binary '*'\n", "- a\n"),
    *("\t\n", "---\n", "...\n", "x: \x1b[31m\n", "x: !!python/object/apply:os.system ['true']\n"),
    "b0: &b0 [x]\n"
    + "".join(f"b{n}: &b{n} [{', '.join([f'*b{n - 1}'] * 8)}]\n" for n in range(1, 9)),
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
    """What looks at a run; what takes long, at some of them."""
    run = RunDir(place)
    summary = summarize(run)
    found = [run.read(), run.read_config(), _plain(summary), run.run_id]
    which = zlib.crc32(repr(found).encode("utf-8", "replace")) % 16
    if which <= 1:
        runs((place,), curves=True)
    elif which <= 3:
        runs((place,), json=True)
    return found


def _plain(summary: Any) -> list[Any]:
    return [str(vars(summary)[name]) for name in ("status", "frames", "last", "best", "seed")]


def _open_hooks(place: Path) -> Any:
    describe(str(place))
    return RunDir(place).read_hooks()


def _open_metrics(place: Path) -> Any:
    return [read_csv(place)]


def _events() -> Files:
    with tempfile.TemporaryDirectory() as place:
        sink = TensorBoardSink(Path(place))
        for step in range(20):
            sink.write_scalars({"eval/return": float(step), "loss": 0.5}, step)
        sink.close()
        return {"events.out.tfevents.1.x": next(iter(read(Path(place)).values()))}


def _spoil_events(files: Files, rng: random.Random) -> None:
    for name in files:
        files[name] = mutate_bytes(files[name], rng)  # type: ignore[arg-type]


def _open_configuration(place: Path) -> Any:
    """What ``hooktrainer train ppo --config`` makes of a file."""
    return PPO(**{"env": "CartPole-v1", "total_frames": 1, **values_in(PPO, place)}).as_dict()


def _configuration() -> Files:
    run = PPO(env="CartPole-v1", total_frames=1000, info_keys=("x",), placement="eval: cpu")
    plain = {"name": "ppo", **run.as_dict(), "env_kwargs": {"render_mode": None}, "seeds": "3-6"}
    return {"config.yaml": yaml.safe_dump(plain).encode()}


def _sweep_in(place: Path) -> Sweep:
    run = PPO(env="CartPole-v1", total_frames=128, eval_interval=32, tuned=False)
    fixed = ("lmbda", "clip_epsilon", "entropy_coeff")
    return Sweep(run, SweepOptions(run_dir=place, trials=6, sampler="random"), fixed=fixed)


_STUDY = ("sweep.json", *(f"trial{number}/trial.json" for number in range(5)))


def _study() -> Files:
    with tempfile.TemporaryDirectory() as place:
        sweep = _sweep_in(Path(place))
        for value in (1.0, None, 3.0, 2.0, 5.0):
            trial = sweep.ledger.take()
            trial.reports, trial.frames = {32: 32.0, 64: 64.0}, 128
            if value == 2.0:
                trial.state, trial.value = "pruned", value
            sweep.ledger.finish(trial, value)
        trial.final = 1.0
        sweep.ledger.save(trial)
        sweep.close()
        return {name: (Path(place) / name).read_bytes() for name in _STUDY}


def _spoil_study(files: Files, rng: random.Random) -> None:
    name = rng.choice(_STUDY)
    files[name] = mutate_json(files[name], rng)


def _open_study(place: Path) -> Any:
    """What `hooktrainer sweep` does with a study before and after it trains."""
    sweep = _sweep_in(place)
    try:
        best, winner = sweep.best, sweep.winner
        found = [trial_rows(sweep), importances(sweep), [one.final for one in sweep.trials]]
        sweep_page(sweep, "a verdict")
        return [*found, *(None if one is None else one.number for one in (best, winner))]
    finally:
        sweep.close()


_OR_NONE = (ConfigError, FileNotFoundError)


def targets() -> list[Target]:
    """The targets here."""
    spoil_yaml = _only("config.yaml", _spoil_yaml)
    return [
        Target("run.json", _run, _only("run.json", mutate_json), _open_run),
        Target("config.yaml", _run, spoil_yaml, _open_run),
        Target("hooks.json", _run, _only("hooks.json", mutate_json), _open_hooks),
        Target("metrics.csv", _run, _only("metrics.csv", _spoil_csv), _open_metrics, _OR_NONE),
        Target("configuration", _configuration, spoil_yaml, _open_configuration, _OR_NONE),
        Target("study", _study, _spoil_study, _open_study),
        Target("event files", _events, _spoil_events, read_scalars),
    ]
