"""Requests take effect on all ranks at once, and only when they have met."""

from __future__ import annotations

import pytest

from hooktrainer.loop import Control
from hooktrainer.run import RankControl


class TwoRanks:
    """Rank 0, with another one that says what it is told to."""

    rank, world_size = 0, 2

    def __init__(self) -> None:
        self.other = False, False, False, 0

    def all_gather(self, place, value):
        return [value, (("the other's reason", "pruned"), *self.other)]


def test_a_request_waits_until_the_ranks_meet():
    before = Control()
    before.request_stop("mine")
    control = RankControl(before, TwoRanks())
    control.asked.requests |= {"save", "log"}
    assert (control.stop_reason, control.take("save")) == (None, False)
    control.agree("the end of a batch")
    assert control.stop_reason == "mine"
    assert (control.take("save"), control.take("save")) == (True, False)
    assert (control.take("log"), control.take("log")) == (True, False)


@pytest.mark.parametrize(("signal", "status"), [(15, "interrupted"), (0, "pruned")])
def test_what_another_rank_asks_for_is_done_here(signal, status):
    ranks = TwoRanks()
    ranks.other = True, True, False, signal
    control = RankControl(Control(), ranks)
    control.agree("the end of a batch")
    assert (control.stop_reason, control.signal) == ("the other's reason", signal or None)
    assert (control.take("save"), control.take("log")) == (True, False)
    control.end()
    assert control.status == status


def test_an_early_end_of_the_collectors_needs_no_meeting():
    control = RankControl(Control(), TwoRanks())
    control.request_stop("the collector ended")
    control.end()
    assert (control.status, control.stop_reason) == ("stopped", "the collector ended")
