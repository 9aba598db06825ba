from __future__ import annotations

from hooktrainer.loop import hook as priorities


def test_the_table_lists_every_priority_in_run_order():
    numbers = [number for number, _ in priorities.PRIORITIES.values()]
    assert numbers == sorted(numbers, reverse=True)
    constants = {k: v for k, v in vars(priorities).items() if isinstance(v, float)}
    assert {name: number for name, (number, _) in priorities.PRIORITIES.items()} == constants
    assert priorities.DEFAULT == 0
