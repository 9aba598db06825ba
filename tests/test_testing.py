from __future__ import annotations

import pytest
import torch

from hooktrainer import HookError, TrainerHookBase
from hooktrainer.errors import CheckpointError
from hooktrainer.testing import check_hook, tiny_trainer


class Good(TrainerHookBase):
    """Keeps the contract."""

    def __init__(self) -> None:
        self.n = 0
        self.mean = torch.zeros(())

    def register(self, trainer, name="good"):
        trainer.register_module(name, self)
        trainer.register_op("post_steps_log", self)

    def __call__(self, batch):
        self.n += 1
        self.mean = self.mean + batch["next", "reward"].mean()
        return {"n": self.n}

    def state_dict(self):
        return {"n": self.n, "mean": self.mean}

    def load_state_dict(self, state_dict):
        self.n = state_dict["n"]
        self.mean = state_dict["mean"]


def test_a_good_hook_passes():
    check_hook(Good())


def test_check_hook_accepts_a_trainer_that_does_not_pickle():
    def make():
        trainer = tiny_trainer()
        trainer.register_op("post_steps", lambda: None)
        return trainer

    check_hook(Stateless(), make)


class Stateless(TrainerHookBase):
    """Register and call, nothing else."""

    def register(self, trainer, name="stateless"):
        trainer.register_module(name, self)
        trainer.register_op("post_steps", self)

    def __call__(self):
        pass


class NoDefaultName(Good):
    def register(self, trainer, name):
        super().register(trainer, name)


class RegistersNothing(Good):
    def register(self, trainer, name="x"):
        trainer.register_module(name, self)


class NotAModule(Good):
    def register(self, trainer, name="x"):
        trainer.register_op("post_steps_log", self)


class RestoresHalf(Good):
    def load_state_dict(self, state_dict):
        self.n = state_dict["n"]


class CannotBeSaved(Good):
    def state_dict(self):
        return {"n": self.n, "mean": self.mean, "object": object()}


class SharedList(Good):
    seen: list = []  # noqa: RUF012


class CannotBePickled(Good):
    def __init__(self):
        super().__init__()
        self.function = lambda: None


class ClosesOnce(Good):
    def __init__(self):
        super().__init__()
        self.open = True

    def close(self):
        if not self.open:
            raise OSError("closed already")
        self.open = False


class NoState:
    """Neither state_dict nor load_state_dict."""

    def register(self, trainer, name="no_state"):
        trainer.register_module(name, self)
        trainer.register_op("post_steps", self)

    def __call__(self):
        pass


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        (NoDefaultName, "give name a default"),
        (RegistersNothing, "registers no op"),
        (NotAModule, "register_module"),
        (RestoresHalf, "does not restore"),
        (SharedList, "mutable class attribute"),
        (CannotBePickled, "pickle"),
        (NoState, "state_dict"),
    ],
)
def test_each_bad_hook_is_refused_by_name(hook, message):
    with pytest.raises(HookError, match=message) as caught:
        check_hook(hook())
    assert hook.__name__ in str(caught.value)


@pytest.mark.parametrize(
    ("hook", "error", "message"),
    [
        (CannotBeSaved, CheckpointError, "CannotBeSaved/object"),
        (ClosesOnce, OSError, "closed already"),
    ],
)
def test_a_hook_that_fails_shows_its_own_error(hook, error, message):
    with pytest.raises(error, match=message):
        check_hook(hook())
