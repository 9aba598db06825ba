"""One description of a run: its fields, what is said at them, and its file."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import pytest

from hooktrainer import algorithms
from hooktrainer.algorithms import MAPPO, MBPO, PPO
from hooktrainer.algorithms.algorithm import parse
from hooktrainer.errors import ConfigError
from hooktrainer.run import Run, RunConfig
from hooktrainer.run.config import (
    FREE_AMONG_SEEDS,
    Count,
    Fraction,
    Mark,
    Means,
    check_ranges,
    marked,
    parse_run,
    take_config,
)
from hooktrainer.run.run import check_unchanged


def test_every_option_is_a_means_of_the_run_or_a_part_of_what_is_run():
    names = {field.name for field in fields(RunConfig)}
    free_on_resume = marked(RunConfig, Mark.MEANS, Mark.ON_RESUME)
    assert names - free_on_resume == {
        *("hook", "seed", "log_interval", "save_interval"),
        *("overlap", "shards", "deterministic"),
    }
    assert names - FREE_AMONG_SEEDS == {"hook", "overlap", "shards", "deterministic"}


@pytest.mark.parametrize("name", algorithms.names())
def test_no_option_that_only_means_or_measures_tells_runs_of_an_algorithm_apart(name):
    free = marked(algorithms.get(name), Mark.MEANS, Mark.AMONG_SEEDS)
    assert free <= FREE_AMONG_SEEDS
    assert "seeds" in free


@dataclass(frozen=True, kw_only=True)
class Args(RunConfig):
    width: Count = 4
    share: Fraction | None = None
    names: tuple[str, ...] = ()
    rate: float = 1e-4
    bias: float | None = None
    mode: Literal["fast", "slow"] | None = None
    place: Literal["here"] | str = "here"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"width": 0}, "toy: width=0: pass a positive integer"),
        ({"share": 1.5}, "toy: share=1.5: pass a number between 0 and 1"),
        ({"total_frames": 0}, "toy: total_frames=0: pass a positive integer"),
        ({"overlap": -1}, "toy: overlap=-1: pass an integer of 0 or more"),
        ({"trace": -1}, "toy: trace=-1: pass an integer of 0 or more"),
        ({"profile": -1}, "toy: profile=-1: pass an integer of 0 or more"),
        ({"collectors": 0}, "toy: collectors=0: pass a positive integer"),
        ({"stages": 0, "workers": 1}, "toy: stages=0: pass a positive integer"),
        ({"mode": "fat"}, "toy: mode='fat': pass 'fast' or 'slow'"),
        ({"mode": True}, "toy: mode=True: pass 'fast' or 'slow'"),
        ({"share": "0.5"}, "toy: share='0.5': pass a number"),
        ({"rate": lambda progress: progress}, "toy: rate=<function .*: pass a number"),
        ({"strict": "false"}, "toy: strict='false': pass True or False"),
    ],
)
def test_a_value_out_of_its_range_leaves_no_run_behind(
    given: dict[str, Any], message: str, tmp_path: Path
) -> None:
    args = Args(**{"total_frames": 8, "run_dir": tmp_path / "run", **given})
    with pytest.raises(ConfigError, match=message):
        Run(args, "toy")
    assert not (tmp_path / "run").exists()
    check_ranges("toy", Args(total_frames=8, share=None, mode="slow", place="there"))


def test_one_in_place_of_several() -> None:
    run = PPO(env="CartPole-v1", total_frames=8, num_cells=64, info_keys="success", logger="csv")
    assert (run.num_cells, run.info_keys, run.logger) == ((64,), ("success",), ("csv",))
    mine = object()
    assert PPO(env="CartPole-v1", total_frames=8, loggers=mine, logger=mine).loggers == (mine, mine)


def test_a_mark_in_a_recipes_own_options_counts_at_a_resume() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Marked(RunConfig):
        total_frames: int = 1  # free as it is in every run
        width: Means[int] = 4
        depth: int = 2

    before = Marked(total_frames=1).as_dict()
    now = Marked(total_frames=9, width=5)
    check_unchanged(now, now.as_dict(), before, Path("run"))
    other = Marked(total_frames=9, depth=3)
    with pytest.raises(ConfigError, match="depth: 2 before, 3 now"):
        check_unchanged(other, other.as_dict(), before, Path("run"))


WHOLE = Args(
    total_frames=3,
    seed=2,
    width=7,
    share=0.25,
    names=("a b", "c"),
    rate=1e-7,
    logger=("csv", "mlflow"),
    progress_bar=False,
    strict=False,
    engine="ray",
    placement="collectors: 2@cpu",
    bias=-150.0,
)


def read(tmp_path: Path, args: RunConfig, *words: str) -> Any:
    from hooktrainer.base.plain import to_yaml

    file = tmp_path / "config.yaml"
    file.write_text(to_yaml({"name": "toy", **args.as_dict()}))
    return parse_run(Args, [f"--config={file}", *words])


@pytest.mark.parametrize("args", [WHOLE, Args(total_frames=1)])
def test_a_configuration_makes_the_same_run(args: Args, tmp_path: Path) -> None:
    assert read(tmp_path, args) == args


def test_what_is_said_beside_a_configuration_goes_first(tmp_path: Path) -> None:
    words = ["--width", "9", "--progress-bar", "--logger=tensorboard", "--strict"]
    run = read(tmp_path, WHOLE, *words)
    assert (run.width, run.progress_bar, run.logger) == (9, True, ("tensorboard",))
    assert (run.strict, run.names) == (True, WHOLE.names)


@pytest.mark.parametrize(
    ("content", "message"),
    [("a: [", "config.yaml: "), ("- 1", "no mapping"), ("1: 2", "no mapping")],
)
def test_a_file_that_is_no_configuration_is_refused(
    content: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text(content)
    with pytest.raises(ConfigError, match=message) as caught:
        parse_run(Args, ["--config", str(tmp_path)])
    assert "\n" not in str(caught.value)


def test_words_behind_two_dashes_and_without_a_file_are_left() -> None:
    words = ["--a", "--", "--config", "x", "--trust"]
    assert take_config(words) == (None, False, words)
    with pytest.raises(ConfigError, match=r"--config: name the config\.yaml"):
        parse_run(Args, ["--a", "--config"])
    with pytest.raises(ConfigError, match="there is no configuration nowhere"):
        parse_run(Args, ["--config", "nowhere"])


def test_numbers_are_written_in_a_file_as_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("total_frames: 5e4\nrate: 1e-3\nlogger: csv\nbias: 2\n")
    run = parse_run(Args, ["--config", str(tmp_path)])
    assert (run.total_frames, run.rate, run.logger, run.bias) == (50_000, 1e-3, ("csv",), 2.0)


@pytest.mark.parametrize(
    "entry",
    [
        "names: [a, --run-dir=elsewhere]",
        "names: [[a]]",
        "names: {a: b}",
        "width: '4 --run-dir elsewhere'",
        "width: true",
        "width: 1.5",
        "rate: [1]",
        "progress_bar: 1",
        "engine: spark",
        "placement: {a: 1}",
        "run-dir: elsewhere",
        "total_frames: .nan",
        "device: [cpu, --run-dir=elsewhere]",
    ],
)
def test_a_value_in_a_file_is_a_value_of_its_field_and_nothing_else(
    entry: str, tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text(f"total_frames: 1\n{entry}\n")
    with pytest.raises(ConfigError, match=entry.split(":")[0]) as caught:
        parse_run(Args, ["--config", str(tmp_path)])
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "typed"),
    [
        ("env: 'evil:CartPole-v1'", ["--env", "evil:CartPole-v1"]),
        ("env_kwargs: {entry_point: 'evil:Env'}", None),
        ("env_kwargs: {xml_file: /etc/passwd}", None),
        ("wrappers: ['evil:LastAction']", ["--wrappers", "evil:LastAction"]),
    ],
)
def test_what_a_file_would_have_imported_needs_trust_or_to_be_typed(
    entry: str, typed: list[str] | None, tmp_path: Path
) -> None:
    env = "" if entry.startswith("env:") else "env: CartPole-v1\n"
    (tmp_path / "config.yaml").write_text(f"total_frames: 1\n{env}{entry}\n")
    words = ["--config", str(tmp_path)]
    with pytest.raises(ConfigError, match=r"evil|xml_file") as caught:
        parse(PPO, words)
    assert "--trust" in str(caught.value)
    trusted = parse(PPO, [*words, "--trust"])
    assert trusted.env.endswith("CartPole-v1")
    if typed is not None:
        assert parse(PPO, [*words, *typed]) == trusted


def test_no_word_is_lost_where_an_option_of_several_is_repeated() -> None:
    words = ["--env", "A-v0", "--total-frames", "1", "--wrappers", "a:A", "b:B"]
    assert parse(PPO, words).wrappers == ("a:A", "b:B")
    with pytest.raises(ConfigError, match="--wrappers is repeated: write --wrappers once"):
        parse(PPO, [*words, "--wrappers=c:C"])


@pytest.mark.parametrize(
    "name", ["hooktrainer.collect:LastAction", "gymnasium.wrappers:TimeAwareObservation"]
)
def test_wrappers_that_only_compute_need_no_trust(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(f"total_frames: 1\nenv: A-v0\nwrappers: ['{name}']\n")
    assert parse(PPO, ["--config", str(tmp_path)]).wrappers == (name,)


def test_a_function_that_a_file_names_needs_trust(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("env: Pendulum-v1\nterminates: evil.py:fallen\n")
    with pytest.raises(ConfigError, match=r"the function 'evil.py:fallen'.*--trust"):
        parse(MBPO, ["--config", str(tmp_path)])
    assert parse(MBPO, ["--config", str(tmp_path), "--trust"]).terminates == "evil.py:fallen"


@pytest.mark.parametrize("env", ["evil.py:Pair", "evil:Pair", "vmas/evil.py:Pair"])
def test_a_module_of_several_agents_in_a_file_needs_trust(env: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(f"total_frames: 1\nenv: {env}\n")
    with pytest.raises(ConfigError, match=r"needs the module of .*evil.*--trust"):
        parse(MAPPO, ["--config", str(tmp_path)])
