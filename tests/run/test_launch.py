"""What a recipe says of mistakes: one line for those of its user, a traceback for the others."""

from __future__ import annotations

import pytest

from hooktrainer.errors import (
    CheckpointError,
    ConfigError,
    MissingPackageError,
    NotFoundError,
    StateMismatchError,
    TakenError,
    WriteFailedError,
    add_note,
)
from hooktrainer.run import mistakes_in_one_line

USERS = [
    *(ConfigError, CheckpointError, StateMismatchError),
    *(NotFoundError, TakenError, MissingPackageError),
]


@pytest.mark.parametrize("kind", USERS)
def test_a_mistake_of_the_user_is_said_in_one_line_with_its_notes(kind, capsys):
    error = kind("no run 'x': name another")
    add_note(error, "in hook log")
    with pytest.raises(SystemExit) as caught, mistakes_in_one_line():
        raise error
    assert caught.value.code == 2
    assert capsys.readouterr().err == "error: no run 'x': name another\n  in hook log\n"


def test_a_disk_that_failed_under_way_is_no_wrong_usage(capsys):
    with pytest.raises(SystemExit) as caught, mistakes_in_one_line():
        raise WriteFailedError("full")
    assert (caught.value.code, capsys.readouterr().err) == (1, "error: full\n")


@pytest.mark.parametrize("kind", [FileNotFoundError, ModuleNotFoundError, ValueError, OSError])
def test_what_a_hook_fails_with_keeps_its_traceback(kind, capsys):
    with pytest.raises(kind, match="my file"), mistakes_in_one_line():
        raise kind("my file")
    assert not capsys.readouterr().err
