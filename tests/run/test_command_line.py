"""What recipes, algorithms and commands read alike: integers and option names."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from hooktrainer.base.words import whole_number
from hooktrainer.run import RunConfig
from hooktrainer.run.command_line import parse
from hooktrainer.run.config import parse_run


@dataclass(frozen=True, kw_only=True)
class Args(RunConfig):
    """Options."""

    total_frames: int = 10
    num_cells: tuple[int, ...] = (64, 64)
    every: int | None = None
    scale: bool | None = None


@pytest.mark.parametrize(
    ("text", "value"),
    [("5e4", 50_000), ("50_000", 50_000), ("5.0E4", 50_000), ("-3", -3), ("1.5e1", 15)],
)
def test_integers_may_be_written_as_people_write_them(text, value):
    assert whole_number(text) == value
    args = parse(Args, ["--total-frames", text, "--num-cells", text, "8", "--every", text])
    assert (args.total_frames, args.num_cells, args.every) == (value, (value, 8), value)
    assert all(type(n) is int for n in (args.total_frames, args.every, *args.num_cells))


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ([], None),
        (["--scale"], True),
        (["--no-scale"], False),
        (["--scale", "False"], False),
        (["--scale=False"], False),
        (["--scale", "None"], None),
        (["--scale", "--every", "3"], True),
        (["--every", "3", "--no-scale", "--num-cells", "8"], False),
    ],
)
def test_a_switch_with_a_default_of_its_own_is_given_like_any_other(words, value):
    assert parse_run(Args, words).scale is value


@pytest.mark.parametrize("text", ["5.5e0", "nan", "inf", "1e999999999", "5e-1", "x", "", "0x10"])
def test_what_is_no_integer_is_refused(text, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(Args, ["--total-frames", text])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.count("Error parsing --total-frames") == 1
    assert "number" in said


def test_an_option_that_does_not_exist_is_answered_with_the_nearest(capsys):
    with pytest.raises(SystemExit) as ended:
        parse(Args, ["--total-frame", "5"], prog="x")
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "--total-frame, 5" in said
    assert "--total-frames INT" in said
