"""Requests take effect on all ranks at once, and only when they have met."""

from __future__ import annotations

from hooktrainer.loop.control import Control
from hooktrainer.run.ranks.ranks import RankControl


class TwoRanks:
    """Rank 0, with another one that says what it is told to."""

    rank, world_size = 0, 2

    def __init__(self) -> None:
        self.other = False, False, False, 0

    def meet(self, place, value):
        return [value, (("the other's reason", "pruned"), *self.other)]


def test_a_request_waits_until_the_ranks_meet():
    control = RankControl(Control(), TwoRanks())
    control.request_stop("mine")
    control.request("save")
    control.request("log")
    assert (control.stop_reason, control.take("save")) == (None, False)
    control.agree("the end of a batch")
    assert control.stop_reason == "mine"
    assert (control.take("save"), control.take("save")) == (True, False)
    assert (control.take("log"), control.take("log")) == (True, False)


def test_a_signal_here_stops_all_ranks():
    control = RankControl(Control(), TwoRanks())
    control.receive(15, 30.0)
    assert (control.signal, control.stop_reason) == (None, None)
    control.agree("the end of a batch")
    assert (control.signal, control.stop_reason) == (15, "SIGTERM")


def test_what_another_rank_asks_for_is_done_here():
    ranks = TwoRanks()
    control = RankControl(Control(), ranks)
    ranks.other = True, True, False, 15
    control.agree("the end of a batch")
    assert control.stop_reason == "the other's reason"
    assert control.take("save")
    assert not control.take("log")
    assert control.signal == 15
    control.end()
    assert control.status == "interrupted"


def test_a_status_is_that_of_all_ranks_and_an_early_end_of_the_collectors_needs_no_meeting():
    ranks = TwoRanks()
    control = RankControl(Control(), ranks)
    ranks.other = True, False, False, 0
    control.agree("the end of a batch")
    control.end()
    assert control.status == "pruned"
    control = RankControl(Control(), ranks)
    control.request_stop("the collector ended")
    control.end()
    assert (control.status, control.stop_reason) == ("stopped", "the collector ended")


def test_requests_made_before_it_took_over_are_kept():
    before = Control()
    before.request_stop("solved")
    control = RankControl(before, TwoRanks())
    assert control.stop_reason is None
    control.agree("the start of the run")
    assert control.stop_reason == "solved"
