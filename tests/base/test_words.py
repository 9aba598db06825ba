"""Numbers and lists as people say them, and as they write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hooktrainer.base.words import did_you_mean, listed, plural, printable, ranges, which


def test_one_and_several():
    assert [plural(n, "run") for n in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]
    assert [plural(n, "policy", "policies") for n in (1, 1000)] == ["1 policy", "1,000 policies"]


def test_long_lists_are_cut():
    assert listed([1, 2, 3], most=3) == "1, 2, 3"
    assert listed(range(1027), most=3) == "0, 1, 2 and 1,024 more"
    assert listed([]) == ""


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
def test_what_was_meant(name, hint):
    assert did_you_mean(name, ["evaluate", "eval-return", "log"]) == hint


def test_which_one_of_a_run():
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
def test_what_a_terminal_would_obey_is_shown(text, shown):
    assert printable(text) == shown
    assert printable("a\n\x1b", keep="\n") == "a\n\\x1b"
