"""Numbers and lists as people say them, and as they write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hooktrainer.base.words import did_you_mean, duration, printable, ranges, which


def test_neighbours_are_a_range():
    assert ranges(range(1024)) == "0-1023"
    assert ranges([0, 2, 3, 4, 9]) == "0, 2-4, 9"
    assert ranges(range(0, 100, 2), most=2) == "0, 2 and 48 more"
    assert ranges([]) == ""


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("evalution", " Did you mean evaluate or eval-return?"),
        ("--eval", " Did you mean evaluate or eval-return?"),  # whatever begins so
        ("EVAL_RETURN", " Did you mean eval-return?"),
        ("xyz", ""),
        ("", ""),
    ],
)
def test_the_nearest_names_are_suggested(name, hint):
    assert did_you_mean(name, ["evaluate", "eval-return", "log"]) == hint


def test_checkpoint_choices_are_parsed():
    assert [which(text) for text in ("latest", "best")] == ["latest", "best"]
    assert [which(text) for text in ("50000", "5e4", "50_000")] == ["50000"] * 3
    assert [which(text) for text in ("-5", "5.5", "runs/a", "", "nan")] == [None] * 5


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Ünïcode ± 界", "Ünïcode ± 界"),
        ("\x1b[2J\x07", r"\x1b[2J\x07"),
        ("one\ntwo\r\t", r"one\ntwo\r\t"),
        ("\u202eevil\u2028\x9b", r"\u202eevil\u2028\x9b"),
        ("\udc80", r"\udc80"),
        (Path("a"), "a"),
    ],
)
def test_control_characters_are_escaped(text, shown):
    assert printable(text) == shown
    assert printable("a\n\x1b", keep="\n") == "a\n\\x1b"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.25, "0.2 s"), (42, "42 s"), (200, "3 min 20 s"), (18_720, "5 h 12 min"), (3e5, "3 d 11 h")],
)
def test_a_time_span(seconds, said):
    assert duration(seconds) == said
