"""When what is compiled for many learners is compiled anew for fewer."""

from __future__ import annotations

from hooktrainer.graphs.room import Room


def test_compiled_rows_fit_until_those_of_nobody_cost_more_than_compiling():
    room = Room(8, is_compiled=True)
    assert [room.fits(needed) for needed in (9, 8, 2)] == [False, True, True]
    room.used(8, 3.0)  # which compiled
    for _ in range(100):
        room.used(8, 1.0)
    assert room.fits(2)
    for _ in range(4):
        assert room.fits(2)
        room.used(2, 1.0)  # of which three quarters are nobody's
    assert room.fits(2)  # as much, not more
    room.used(7, 1.0)
    assert [room.fits(needed) for needed in (9, 8, 7, 2)] == [False, True, False, False]


def test_what_is_not_compiled_has_just_the_rows_that_are_needed():
    room = Room(8, is_compiled=False)
    assert [room.fits(needed) for needed in (9, 8, 7)] == [False, True, False]
