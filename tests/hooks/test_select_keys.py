from __future__ import annotations

import pytest

from hooktrainer import SelectKeys
from hooktrainer.testing import tiny_trainer


def test_only_these_keys_remain():
    seen, trainer = [], tiny_trainer(total_frames=10)
    SelectKeys(["action", ("next", "reward")]).register(trainer)
    trainer.register_op("pre_steps_log", lambda td: seen.append(set(td.keys(True, True))))
    trainer.train()
    assert seen == [{"action", ("next", "reward")}]


def test_a_missing_key_names_the_hook():
    trainer = tiny_trainer()
    SelectKeys(["obs"]).register(trainer)
    with pytest.raises(KeyError, match="obs") as caught:
        trainer.train()
    assert "select_keys" in caught.value.__notes__[0]


def example(trainer):
    return SelectKeys(["observation", ("next", "reward")])
