"""Loops side by side: in what order they go on, and what each has for itself."""

from __future__ import annotations

import os
import random
import signal
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hooktrainer.loop.company import Joins
from hooktrainer.loop.control import Control
from hooktrainer.loop.lockstep import Lockstep


class Doubling:
    """Answers with twice what was asked, and notes who asked at the same time."""

    def __init__(self, rank=0):
        self.rank = rank
        self.served = []

    def serve(self, requests):
        self.served.append(list(requests))
        return [ValueError("too much") if x > 90 else 2 * x for x in requests]


class Body:
    """A loop that asks for the doubles of numbers."""

    def __init__(self, numbers, rank=0, seed=0):
        self.numbers, self.rank = numbers, rank
        self.control = Control()
        self.has_ended, self.grace, self.threads, self.loss_module = False, 5.0, 1, None
        self.registry = SimpleNamespace(hooks=lambda: [self])
        self.source = None
        self.bridge = SimpleNamespace(only_cleans_up=lambda handler: False)
        self.out = []
        random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)

    def join(self, company):
        self.company = company
        self.server = company.server("doubling", Doubling)

    def run(self):
        for number in self.numbers:
            self.out.append(self.company.ask(self.server, number))

    def train(self):
        self.out.append("closed")


def drawn():
    return random.random(), float(np.random.rand()), float(torch.rand(())), float(np.random.randn())


class Drawing(Body):
    def run(self):
        for number in self.numbers:
            self.out.append(drawn())
            self.company.ask(self.server, number)


def test_what_all_ask_for_is_served_at_once_and_who_ends_is_waited_for_no_longer():
    loops = [Body([1, 2, 3]), Body([10]), Body([20, 30])]
    assert isinstance(loops[0], Joins)
    group = Lockstep(loops)
    assert group.run() == [None, None, None]
    assert [loop.out for loop in loops] == [[2, 4, 6], [20], [40, 60]]
    assert group.servers["doubling"].served == [[1, 10, 20], [2, 30], [3]]


def test_a_request_of_a_higher_rank_waits_for_those_of_a_lower_one():
    order = []

    class Ranked(Body):
        def join(self, company):
            self.company = company
            self.first = company.server("first", lambda: Doubling(0))
            self.last = company.server("last", lambda: Doubling(2))

        def run(self):
            for number in self.numbers:
                self.company.ask(self.first, number)
            self.company.ask(self.last, 7)
            order.append(len(self.numbers))

    group = Lockstep([Ranked([1, 2, 3]), Ranked([1])])
    group.run()
    assert group.servers["last"].served == [[7, 7]]
    assert order == [3, 1]


def test_each_has_its_own_random_numbers_and_the_process_has_its_own():
    def made(seeds):
        for seed in seeds:
            yield Drawing(range(3), seed=seed)

    alone = []
    for seed in (3, 4, 5):
        group = Lockstep(made([seed]))
        group.run()
        alone.append(group.members[0].loop.out)
    together = Lockstep(made([3, 4, 5]))
    random.seed(9), np.random.seed(9), torch.manual_seed(9)
    generator = np.random.get_bit_generator()
    together.run()
    assert np.random.get_bit_generator() is generator
    after = drawn()
    random.seed(9), np.random.seed(9), torch.manual_seed(9)
    assert after == drawn()
    assert [member.loop.out for member in together.members] == alone
    assert len({one for out in alone for one in out}) == 9


def test_one_that_fails_is_told_of_and_the_others_go_on():
    loops = [Body([1, 99, 3]), Body([10, 20, 30])]
    error, none = Lockstep(loops).run()
    assert str(error) == "too much"
    assert none is None
    assert loops[0].out == [2]
    assert loops[1].out == [20, 40, 60]


def test_one_that_has_ended_before_is_closed():
    loops = [Body([1]), Body([2])]
    loops[0].has_ended = True
    assert Lockstep(loops).run() == [None, None]
    assert [loop.out for loop in loops] == [["closed"], [4]]


@pytest.mark.usefixtures("free_sigterm")
def test_a_signal_stops_all_of_them():
    class Stopping(Body):
        def run(self):
            while self.control.stop_reason is None:
                self.company.ask(self.server, 1)
                if self.numbers:
                    os.kill(os.getpid(), signal.SIGTERM)
            self.out.append(self.control.stop_reason)

    loops = [Stopping([1]), Stopping([])]
    with pytest.raises(SystemExit) as end:
        Lockstep(loops).run()
    assert end.value.code == 128 + signal.SIGTERM
    assert [loop.out for loop in loops] == [["SIGTERM"], ["SIGTERM"]]


def test_an_interruption_ends_all_as_it_ends_one():
    class Breaking(Body):
        def run(self):
            try:
                self.company.ask(self.server, 1)
                raise KeyboardInterrupt("again") if self.numbers else None
            except BaseException as error:
                self.out.append(str(error))
                raise

    class Waiting(Body):
        def run(self):
            try:
                super().run()
            except BaseException as error:
                self.out.append(str(error))
                raise

    loops = [Waiting([1, 2]), Breaking([1]), Waiting([1, 2, 3])]
    with pytest.raises(KeyboardInterrupt, match="again"):
        Lockstep(loops).run()
    assert [loop.out for loop in loops] == [[2, "again"], ["again"], ["again"]]


def test_gradient_mode_is_each_loops_own():
    class Modes(Body):
        def run(self):
            with torch.set_grad_enabled(bool(self.numbers[0])):
                for number in self.numbers:
                    self.company.ask(self.server, number)
                    self.out.append(torch.is_grad_enabled())

    loops = [Modes([0, 0]), Modes([1, 1])]
    Lockstep(loops).run()
    assert [loop.out for loop in loops] == [[False, False], [True, True]]
    assert torch.is_grad_enabled()


def test_a_line_is_said_once():
    said = []
    group = Lockstep([Body([1]), Body([2])], say=said.append)
    for member in group.members:
        member.say("slowly")
    assert said == ["slowly"]
