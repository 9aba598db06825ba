from __future__ import annotations

from hooktrainer.loop.control import Control


def test_the_first_reason_is_kept():
    control = Control()
    assert control.stop_reason is None
    control.request_stop("solved")
    control.request_stop("bored")
    assert control.stop_reason == "solved"


def test_a_stop_may_be_withdrawn():
    control = Control()
    control.request_stop("solved")
    control.withdraw_stop(None)
    assert control.stop_reason is None
