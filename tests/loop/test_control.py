from __future__ import annotations

from hooktrainer.loop.control import Control


def test_the_first_reason_is_kept():
    control = Control()
    assert control.stop_reason is None
    control.request_stop("solved")
    control.request_stop("bored")
    assert control.stop_reason == "solved"


def test_a_stop_without_a_reason_is_a_stop():
    control = Control()
    control.request_stop(None)
    assert control.stop_reason


def test_a_save_request_is_taken_once():
    control = Control()
    assert not control.take_save_request()
    control.request_save()
    assert control.take_save_request()
    assert not control.take_save_request()


def test_a_log_request_is_taken_once():
    control = Control()
    assert not control.take_log_request()
    control.request_log()
    assert control.take_log_request()
    assert not control.take_log_request()


def test_a_signal_stops_the_run_and_interrupts_it():
    control = Control()
    control.receive(15, 30.0)
    assert (control.signal, control.stop_reason) == (15, "SIGTERM")
    control.end()
    assert control.status == "interrupted"


def test_a_stop_may_be_withdrawn():
    control = Control()
    control.request_stop("solved")
    control.withdraw_stop(None)
    assert control.stop_reason is None
