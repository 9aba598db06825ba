"""Steps on data: accumulated gradients, closures, schedulers by epochs and metrics, groups."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from classification import Classify, make_data, make_trainer

from hooktrainer import (
    AverageWeights,
    ConfigError,
    DataCollector,
    Every,
    LRSchedulerHook,
    OptimizerHook,
    StateMismatchError,
    Trainer,
    Validate,
)
from hooktrainer.optim import FlatAdam, parameter_groups
from hooktrainer.testing import tiny_trainer

SGD = partial(torch.optim.SGD, lr=0.5, momentum=0.9)


def in_parts(batch_size: int, accumulate: int, make: Any = SGD, epochs: int = 3) -> Trainer:
    """Trains on 10 samples an epoch, in order."""
    loss = Classify()
    collector = DataCollector(make_data(), batch_size, shuffle=False, epochs=epochs)
    options = {"optimizer": make(loss.parameters()), "clip_norm": 0.1, "accumulate": accumulate}
    return make_trainer(collector, loss, **options)


def parameters(trainer: Trainer) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.loss_module.parameters()])


@pytest.mark.parametrize("make", [SGD, partial(FlatAdam, lr=0.1)])
@pytest.mark.parametrize(("size", "parts"), [(5, 2), (2, 5), (4, 3), (6, 2)])
def test_accumulated_gradients_are_those_of_the_large_batch(make, size, parts):
    """Also of sub-batches of 4, 4 and 2, or 6 and 4, samples: each sample counts the same."""
    whole, split = in_parts(10, 1, make), in_parts(size, parts, make)
    for trainer in (whole, split):
        trainer.train()
    torch.testing.assert_close(parameters(split), parameters(whole))
    assert whole.optim_count == split.optim_count == 3


def test_by_hand_a_step_is_that_of_the_weighted_mean():
    trainer = in_parts(6, 2, partial(torch.optim.SGD, lr=1.0), 1)
    loss, data = Classify(), make_data()
    trainer.clip_norm = None
    trainer.train()
    total = 0.6 * loss(data[:6])["loss"] + 0.4 * loss(data[6:])["loss"]
    total.backward()
    for trained, one in zip(trainer.loss_module.parameters(), loss.parameters(), strict=True):
        torch.testing.assert_close(trained, one - one.grad)


def test_only_real_steps_count_and_every_loss_is_logged(logger):
    loss = Classify()
    optimizer = SGD(loss.parameters())
    trainer = make_trainer(loss=loss, optimizer=optimizer, accumulate=2, logger=logger)
    steps: list[int] = []
    trainer.register_op("post_optim", lambda: steps.append(trainer.optim_count))
    LRSchedulerHook(torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5), "optim").register(trainer)
    average = AverageWeights(loss, every=None)
    average.register(trainer)
    trainer.train()
    assert steps == [1, 2, 3, 4]  # of 9 sub-batches; the last one is not used
    assert optimizer.param_groups[0]["lr"] == 0.5 * 0.5**4
    assert int(average.averaged.n_averaged) == 4
    assert len(logger.column("loss/loss")) == len(logger.column("train/accuracy")) >= 7


@pytest.mark.parametrize("make", [SGD, partial(FlatAdam, lr=0.1)])
def test_a_run_is_resumed_between_the_parts_of_a_step(make):
    whole = in_parts(2, 3, make)
    whole.train()
    for stop in (1, 2, 3, 4):
        first, rest = in_parts(2, 3, make), in_parts(2, 3, make)
        for _ in range(stop):
            first.optim_steps(first.collector.collect())
        rest.load_state_dict(first.state_dict())
        rest.train()
        assert torch.equal(parameters(rest), parameters(whole))
    half = in_parts(2, 3, make)
    half.optim_steps(half.collector.collect())
    with pytest.raises(StateMismatchError, match="accumulate is 1 here"):
        in_parts(2, 1, make).load_state_dict(half.state_dict())


def test_two_optimizers_accumulate_together():
    def trained(size: int, accumulate: int) -> torch.Tensor:
        loss = Classify()
        collector = DataCollector(make_data(), size, shuffle=False, epochs=2)
        trainer = make_trainer(collector, loss, optimizer=None)
        weight, bias = loss.parameters()
        for name, parameter in (("weight", weight), ("bias", bias)):
            hook = OptimizerHook(SGD([parameter]), ["loss"], accumulate=accumulate)
            hook._shared_with = lambda other: ""  # both of one loss
            hook.register(trainer, name)
        trainer.train()
        assert trainer.optim_count == 2
        return parameters(trainer)

    torch.testing.assert_close(trained(5, 2), trained(10, 1))


def test_lbfgs_takes_its_closure():
    loss, data = Classify(), make_data(30)
    optimizer = torch.optim.LBFGS(loss.parameters(), max_iter=5)
    collector = DataCollector(data, 30, shuffle=False, epochs=2)
    trainer = make_trainer(collector, loss, optimizer=optimizer)
    trainer.train()

    other = Classify()
    by_hand = torch.optim.LBFGS(other.parameters(), max_iter=5)

    def closure() -> torch.Tensor:
        by_hand.zero_grad()
        value = other(data)["loss"]
        value.backward()
        return value

    first = [by_hand.step(closure).item() for _ in range(2)]
    torch.testing.assert_close(list(loss.parameters()), list(other.parameters()))
    assert trainer.optim_count == 2
    assert trainer.metrics.latest("loss/loss") == pytest.approx(first[1])
    assert trainer.metrics.latest("train/grad_norm") > 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: OptimizerHook(SGD(Classify().parameters()), accumulate=0),
        lambda: OptimizerHook(SGD(Classify().parameters()), accumulate=2, every=Every(batches=2)),
        lambda: OptimizerHook(torch.optim.LBFGS(Classify().parameters()), accumulate=2),
        lambda: tiny_trainer(optimizer=None, accumulate=2),
        lambda: LRSchedulerHook(torch.optim.lr_scheduler.ReduceLROnPlateau(SGD([torch.zeros(1)]))),
        lambda: make_trainer(
            loss=(one := Classify()),
            optimizer=torch.optim.LBFGS(one.parameters()),
            precision="fp16",
        ),
        lambda: parameter_groups(Classify(), {"*.gain": {}}),
        lambda: parameter_groups(Classify(), {"*": {}, "*.bias": {}}),
        lambda: AverageWeights(Classify(), decay=1.5),
        lambda: Validate(DataCollector(make_data(), 4)),
        lambda: Validate([], batch_size=4),
    ],
)
def test_impossible_arguments_are_refused(make):
    with pytest.raises(ConfigError):
        make()


def test_optimizers_that_accumulate_differently_are_refused():
    trainer = tiny_trainer(optimizer=None)
    for number, name in enumerate(("loss_a", "loss_b"), start=1):
        OptimizerHook(SGD(trainer.loss_module.parameters()), [name], accumulate=number).register(
            trainer, name
        )
    with pytest.raises(ConfigError, match=r"accumulate over \[1, 2\]"):
        trainer.train()


def test_schedulers_by_epoch_and_by_metric():
    loss = Classify()
    optimizer = torch.optim.SGD(loss.parameters(), lr=1.0)
    trainer = make_trainer(loss=loss, optimizer=optimizer)
    rates: list[float] = []
    trainer.register_op("post_optim", lambda: rates.append(optimizer.param_groups[0]["lr"]))
    halved = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    LRSchedulerHook(halved, every=Every(epochs=1)).register(trainer)
    trainer.train()
    assert rates == [1.0] * 3 + [0.5] * 3 + [0.25] * 3

    optimizer = torch.optim.SGD(loss.parameters(), lr=0.0)
    optimizer.param_groups[0]["lr"] = 1.0
    trainer = make_trainer(DataCollector(make_data(), 4, epochs=4), loss, optimizer=optimizer)
    scores = iter([1.0, 0.5, 0.7, 0.6])
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=1)
    LRSchedulerHook(plateau, monitor="val/loss").register(trainer)  # before the hook that logs
    trainer.register_op(
        "post_steps_log", lambda batch: {"val/loss": next(scores)}, every=Every(epochs=1)
    )
    trainer.train()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)  # 0.7 and 0.6 are no better

    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    trainer = make_trainer(loss=loss, optimizer=optimizer)
    LRSchedulerHook(plateau, monitor="val/los").register(trainer)
    with pytest.warns(UserWarning, match=r"'val/los' was not logged; logged were .*loss/loss"):
        trainer.train()


def everything() -> Trainer:
    """Accumulates, averages, validates the averages, and lowers the learning rate by that."""
    loss = Classify()
    optimizer = torch.optim.AdamW(loss.parameters(), lr=0.1)
    options = {"optimizer": optimizer, "accumulate": 3, "clip_norm": 0.1}
    trainer = make_trainer(DataCollector(make_data(30), 8, epochs=4), loss, **options)
    average = AverageWeights(loss, 0.9)
    average.register(trainer)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.3)
    LRSchedulerHook(plateau, monitor="val/loss").register(trainer)
    Validate(make_data(13, 3), batch_size=5, weights=average).register(trainer)
    return trainer


def closure() -> Trainer:
    loss = Classify()
    optimizer = torch.optim.LBFGS(loss.parameters(), max_iter=3, line_search_fn="strong_wolfe")
    return make_trainer(DataCollector(make_data(30), 8, epochs=4), loss, optimizer=optimizer)


def stop_at(trainer: Trainer, batch: int) -> None:
    if trainer.progress.batches == batch:
        trainer.request_stop("now")


@pytest.mark.parametrize("make", [everything, closure])
def test_a_resumed_run_takes_the_same_steps(make):
    whole = make()
    whole.train()
    for stop in (1, 4, 6, 11):
        first, rest = make(), make()
        first.register_op("post_steps", partial(stop_at, first, stop))
        first.train()
        rest.load_state_dict(first.state_dict())
        rest.train()
        assert torch.equal(parameters(rest), parameters(whole))
        rates = [one.optimizer.param_groups[0]["lr"] for one in (rest, whole)]
        assert rates[0] == rates[1]


def test_parameters_are_grouped_by_name():
    module = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 3), "b": torch.nn.Linear(3, 1)})
    module["b"].weight.requires_grad_(False)
    groups = parameter_groups(module, {"*.bias": {"weight_decay": 0.0}, "a.*": {"lr": 0.5}})
    assert [{k: v for k, v in group.items() if k != "params"} for group in groups] == [
        {"weight_decay": 0.0},
        {"lr": 0.5},
    ]
    assert [len(group["params"]) for group in groups] == [2, 1]
    torch.optim.AdamW(groups, lr=0.1)
