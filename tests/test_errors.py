from __future__ import annotations

import pytest

import hooktrainer.errors as errors


@pytest.mark.parametrize(
    ("error", "base"),
    [
        (errors.ConfigError, ValueError),
        (errors.HookSignatureError, TypeError),
        (errors.HookReturnError, TypeError),
        (errors.UnknownHookPointError, ValueError),
        (errors.NonFiniteError, FloatingPointError),
        (errors.StateMismatchError, RuntimeError),
    ],
)
def test_errors_are_what_python_would_raise(error, base):
    assert issubclass(error, base)


def test_broken_hooks_have_one_base():
    for error in (
        errors.HookSignatureError,
        errors.HookReturnError,
        errors.UnknownHookPointError,
        errors.DuplicateNameError,
    ):
        assert issubclass(error, errors.HookError)


def test_skipping_a_step_is_no_exception_that_a_hook_would_catch():
    assert not issubclass(errors.SkipOptimStep, Exception)
