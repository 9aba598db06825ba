"""What recipes, algorithms and commands read alike: integers, and options that do not exist."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from hooktrainer.base.words import whole_number
from hooktrainer.cli.train import train_algorithm
from hooktrainer.errors import ConfigError
from hooktrainer.run.command_line import parse
from hooktrainer.run.config import RunConfig


@dataclass(frozen=True, kw_only=True)
class Args(RunConfig):
    """Options."""

    total_frames: int = 10
    num_cells: tuple[int, ...] = (64, 64)
    every: int | None = None


@pytest.mark.parametrize(
    ("text", "value"),
    [("5e4", 50_000), ("50_000", 50_000), ("5.0E4", 50_000), ("-3", -3), ("1.5e1", 15)],
)
def test_integers_may_be_written_as_people_write_them(text, value):
    assert whole_number(text) == value
    args = parse(Args, ["--total-frames", text, "--num-cells", text, "8", "--every", text])
    assert (args.total_frames, args.num_cells, args.every) == (value, (value, 8), value)
    assert all(type(n) is int for n in (args.total_frames, args.every, *args.num_cells))


@pytest.mark.parametrize("text", ["5.5e0", "nan", "inf", "1e999999999", "5e-1", "x", "", "0x10"])
def test_what_is_no_integer_is_refused(text, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(Args, ["--total-frames", text])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.count("Error parsing --total-frames") == 1
    assert "number" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--total-frame", "5"], "no option --total-frame. Did you mean --total-frames?"),
        (["--total_frme=5"], "no option --total_frme. Did you mean --total-frames?"),
        (["--no-progres-bar"], "Did you mean --no-progress-bar"),
        (["--frobnicate"], "no option --frobnicate. All are listed by x --help."),
    ],
)
def test_an_option_that_does_not_exist_is_answered_with_the_nearest(words, message, capsys):
    with pytest.raises(ConfigError) as caught:
        parse(Args, words, prog="x")
    assert message in str(caught.value)
    assert capsys.readouterr() == ("", "")


def test_an_algorithm_names_the_nearest_although_others_are_missing(capsys):
    with pytest.raises(SystemExit) as ended:
        train_algorithm("ppo", ["--env", "CartPole-v1", "--total-frame", "10"])
    assert ended.value.code == 2
    message = "error: there is no option --total-frame. Did you mean --total-frames?"
    assert capsys.readouterr().err.startswith(message)
