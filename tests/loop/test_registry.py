from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictParams

from hooktrainer import HOOK_POINTS, ConfigError, Every, TrainerHookBase
from hooktrainer.errors import (
    DuplicateNameError,
    HookReturnError,
    HookSignatureError,
    UnknownHookPointError,
)
from hooktrainer.loop.hook import register_all
from hooktrainer.testing import CallRecorder, tiny_trainer


class Counter(TrainerHookBase):
    """Counts its calls, as a log hook."""

    def __init__(self) -> None:
        self.n = 0

    def register(self, trainer, name="counter"):
        trainer.register_op("post_steps_log", self)
        trainer.register_module(name, self)

    def state_dict(self):
        return {"n": self.n}

    def load_state_dict(self, state_dict):
        self.n = state_dict["n"]

    def __call__(self, batch):
        self.n += 1


# -- order ---------------------------------------------------------------------------------------


def run_order(*priorities: float) -> list[int]:
    seen: list[int] = []
    trainer = tiny_trainer(total_frames=10)
    for index, priority in enumerate(priorities):
        trainer.register_op("post_steps", functools.partial(seen.append, index), priority=priority)
    trainer.train()
    return seen


def test_higher_priorities_first_and_ties_stable():
    assert run_order(0, 5, -1, 5, 0.5) == [1, 3, 4, 0, 2]


def test_a_handle_removes_its_op_only():
    seen = []
    trainer = tiny_trainer(total_frames=20)
    first = trainer.register_op("post_steps", lambda: seen.append("first"))
    trainer.register_op("post_steps", lambda: (seen.append("second"), first.remove()))
    trainer.train()
    assert seen == ["first", "second", "second"]
    first.remove()  # again: harmless


# -- what is refused -----------------------------------------------------------------------------


def test_an_unknown_point_names_the_nearest_and_all_ten():
    with pytest.raises(UnknownHookPointError) as caught:
        tiny_trainer().register_op("post_optim_logs", lambda batch: None)
    message = str(caught.value)
    assert "'post_optim_logs'" in message
    assert "Did you mean post_optim_log?" in message
    assert all(point in message for point in HOOK_POINTS)


def test_a_callable_with_too_few_arguments_is_refused_at_registration():
    def my_hook():
        pass

    with pytest.raises(HookSignatureError) as caught:
        tiny_trainer().register_op("post_optim_log", my_hook)
    message = str(caught.value)
    assert "my_hook" in message
    assert "takes ()" in message
    assert "passes (sub_batch)" in message
    assert "post_optim." in message  # the nearest point it fits


async def _coroutine() -> None: ...


def _generator() -> Iterator[None]:
    yield


async def _async_generator() -> AsyncIterator[None]:
    yield


class _CalledLater:
    async def __call__(self) -> None: ...


@pytest.mark.parametrize(
    "op",
    [_coroutine, _generator, _async_generator, functools.partial(_generator), _CalledLater()],
    ids=lambda op: getattr(op, "__name__", type(op).__name__),
)
def test_coroutines_and_generators_are_refused(op):
    with pytest.raises(HookSignatureError, match="runs none of its lines"):
        tiny_trainer().register_op("post_steps", op)


def test_other_ops_cadences_and_names_are_refused():
    with pytest.raises(HookSignatureError, match=r"not callable. Write __call__"):
        tiny_trainer().register_op("post_steps", 3)
    with pytest.raises(ConfigError, match="every=10"):
        tiny_trainer().register_op("post_steps", lambda: None, every=10)
    for name in ("", None, 3):
        with pytest.raises(ConfigError, match="name"):
            tiny_trainer().register_module(name, Counter())


def test_a_hook_in_place_of_a_list_is_refused():
    with pytest.raises(ConfigError, match=r"pass a list, hooks=\[...\]"):
        register_all(Counter(), tiny_trainer())


def test_a_duplicate_name_is_refused_with_a_free_one():
    trainer = tiny_trainer()
    Counter().register(trainer)
    with pytest.raises(DuplicateNameError, match="'counter_2'"):
        Counter().register(trainer)


# -- state ---------------------------------------------------------------------------------------


def hook_states(trainer) -> dict[str, dict]:
    components = trainer.state_dict()["components"]
    return {name[5:]: state for name, state in components.items() if name.startswith("hook/")}


def test_an_op_with_state_is_saved_however_it_was_registered():
    trainer = tiny_trainer()
    trainer.register_op("post_steps_log", Counter())
    trainer.train()
    assert hook_states(trainer)["counter"] == {"n": 5}


# -- describe ------------------------------------------------------------------------------------


def test_describe_lists_every_point_and_hook_in_run_order():
    trainer = tiny_trainer()
    Counter().register(trainer, "eval")
    trainer.register_op("post_steps_log", lambda td: None, priority=3, every=Every(frames=100))
    text = trainer.describe()
    assert text == str(trainer)
    lines = text.splitlines()
    heads = [line.split()[0] for line in lines if line.endswith((")",)) and line[0] != " "]
    assert heads == list(HOOK_POINTS)
    log = lines[lines.index("post_steps_log (log)") + 1 :]
    assert "lambda" in log[0]
    assert "Every(frames=100)" in log[0]
    assert log[1].split()[:2] == ["eval", "always"]
    assert "eval: n" in log[1]
    optimizer = lines[lines.index("optimizer (transform)") + 1 :]
    assert [line.split()[0] for line in optimizer[:2]] == ["nan_guard", "optimizer"]


def test_remove_hook_removes_all_its_ops() -> None:
    trainer = tiny_trainer()
    recorder = CallRecorder()
    recorder.register(trainer)
    assert trainer.remove_hook("call_recorder") is recorder
    assert not trainer.registry.points["post_steps"].calls
    assert "call_recorder" not in trainer.registry.named()
    trainer.train()
    assert recorder.calls == []
    with pytest.raises(ConfigError, match=r"no hook 'optimiser'. Did you mean optimizer"):
        trainer.remove_hook("optimiser")


def test_registered_parameters_of_a_tensordict_are_saved_and_loaded_in_place():
    trainer, other = tiny_trainer(total_frames=10), tiny_trainer(total_frames=10)
    params = [TensorDictParams(TensorDict({"w": torch.full((2,), float(i))})) for i in (1, 2)]
    for each, own in zip((trainer, other), params, strict=True):
        each.register_module("target", own)
    weight = params[1]["w"]
    other.load_state_dict(trainer.state_dict())
    assert params[1]["w"] is weight
    assert weight.tolist() == [1.0, 1.0]


# -- transforms ----------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["batch_process", "process_optim_batch", "post_loss"])
@pytest.mark.parametrize("value", [{"x": 1}, 3, "td", (), False, torch.ones(2, 2)], ids=repr)
def test_a_transform_that_returns_no_tensordict_is_refused(point, value):
    trainer = tiny_trainer()

    def bad_hook(batch):
        return value

    trainer.register_op(point, bad_hook)
    with pytest.raises(HookReturnError) as caught:
        trainer.train()
    message = str(caught.value)
    assert "'bad_hook'" in message
    assert f"hook point {point} returned" in message
    assert type(value).__name__ in message
    assert "TensorDict" in message
    assert "\n" not in message  # as a tensor is printed


@pytest.mark.parametrize("every", [None, Every(batches=2)])
def test_a_process_optim_batch_hook_that_returns_none_keeps_the_sub_batch(every):
    looked, seen = [], []
    trainer = tiny_trainer(total_frames=20)
    trainer.register_op("process_optim_batch", lambda batch: batch.reshape(-1)[:3])
    trainer.register_op("process_optim_batch", lambda batch: looked.append(1), every=every)
    trainer.register_op("post_optim_log", lambda batch: seen.append(len(batch)))
    trainer.train()
    assert seen == [3, 3, 3, 3]
    assert looked


# -- logs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [3, "x", [1], torch.zeros(())], ids=repr)
def test_a_log_hook_that_returns_no_dict_is_refused(value):
    trainer = tiny_trainer()
    trainer.register_op("post_steps_log", lambda batch: value)
    with pytest.raises(HookReturnError, match=r"post_steps_log returned .* dict of metrics"):
        trainer.train()


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", range(10))
def test_an_error_carries_hook_point_frames_and_step(index):
    point, step = HOOK_POINTS[index], (2, 2, 2, 2, 3, 3, 3, 3, 4, 4)[index]
    trainer = tiny_trainer()

    def broken(*args):
        if trainer.collected_frames == 20:
            raise ValueError

    trainer.register_op(point, broken)
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        trainer.train()
    assert caught.value.__notes__ == [
        f"in hook 'broken' at hook point {point} (frames 20, optimizer step {step})"
    ]
