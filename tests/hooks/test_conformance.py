"""Every hook keeps the contract: found automatically, so that none can be forgotten."""

from __future__ import annotations

import inspect
import pickle
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torchrl.trainers
from outcomes import same
from resuming import whole_and_resumed
from tensordict import TensorDict

import hooktrainer
import hooktrainer.hooks
from hooktrainer import Trainer, TrainerHookBase
from hooktrainer.errors import ConfigError, DuplicateNameError, HookError
from hooktrainer.testing import FakeCollector, ScriptedLoss, check_hook, tiny_trainer

HOOKS = {
    name: hook
    for name in hooktrainer.hooks.__all__
    if inspect.isclass(hook := getattr(hooktrainer.hooks, name))
}


def its_tests(name: str) -> ModuleType:
    """The test file of a hook or its module: it may define `example` or `EXAMPLES`."""
    own = re.sub("(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name.removesuffix("Hook"))
    if (Path(__file__).parent / f"test_{own.lower()}.py").exists():
        return import_module(f"test_{own.lower()}")
    return import_module(f"test_{HOOKS[name].__module__.rpartition('.')[2]}")


def prepare(name: str) -> tuple[TrainerHookBase, Trainer]:
    tests = its_tests(name)
    trainer = getattr(tests, "example_trainer", tiny_trainer)()
    make = getattr(tests, "EXAMPLES", {}).get(name) or getattr(tests, "example", None)
    return make(trainer) if make else HOOKS[name](), trainer


def test_every_hook_file_is_listed():
    listed = {getattr(hooktrainer.hooks, name).__module__ for name in hooktrainer.hooks.__all__}
    others = {f"hooktrainer.hooks.{name}" for name in ("averaging", "plugins", "__init__")}
    room = Path(hooktrainer.hooks.__file__).parent
    assert {f"hooktrainer.hooks.{file.stem}" for file in room.glob("*.py")} == listed | others


@pytest.mark.parametrize("name", HOOKS)
def test_it_keeps_the_contract(name):
    hook, trainer = prepare(name)
    check_hook(hook, lambda: trainer)


@pytest.mark.parametrize("name", HOOKS)
def test_a_resumed_run_is_the_run_that_was_not_interrupted(name):
    hooks = []

    def make() -> Trainer:
        torch.manual_seed(0)
        hook, trainer = prepare(name)
        trainer.set_seed(3)
        hook.register(trainer)
        pickle.loads(pickle.dumps(trainer))
        hooks.append(hook)
        return trainer

    whole, rest = whole_and_resumed(make)
    assert (rest.collected_frames, rest.optim_count) == (whole.collected_frames, whole.optim_count)
    assert same(hooks[0].state_dict(), hooks[-1].state_dict())
    assert same(dict(whole.loss_module.state_dict()), dict(rest.loss_module.state_dict()))


@pytest.mark.parametrize("name", HOOKS)
def test_a_name_that_is_taken_leaves_no_op_behind(name):
    hook, trainer = prepare(name)
    trainer.register_module("taken", ScriptedLoss())
    before = list(trainer.registry.entries())
    with pytest.raises(DuplicateNameError):
        hook.register(trainer, "taken")
    assert list(trainer.registry.entries()) == before
    hook.close()


NAN = float("nan")
UNUSED = object()


@pytest.mark.parametrize(
    ("name", "arguments", "options"),
    [
        ("BatchSubSampler", (0,), {}),
        ("ClearCudaCache", (0,), {}),
        ("Curriculum", ("g", [1, 2]), {}),
        ("Curriculum", ("g", [1, 2]), {"frames": [1], "above": [1.0]}),
        ("Curriculum", ("g", [1, 2]), {"frames": [1, 2]}),
        ("Curriculum", ("g", [1, 2]), {"frames": [1], "episodes": 0}),
        ("Curriculum", ("g", [1, 2, 3]), {"frames": [20, 10]}),
        ("EarlyStopping", (), {"mode": "maximum"}),
        ("EarlyStopping", (), {"patience": -1}),
        ("Evaluate", ("CartPole-v1", None), {"every": None, "episodes": 0}),
        ("KLAdaptiveLR", (UNUSED,), {"desired_kl": 0}),
        ("KLAdaptiveLR", (UNUSED,), {"factor": 0.5}),
        ("KLAdaptiveLR", (UNUSED,), {"low": 1e-2, "high": 1e-5}),
        ("LRSchedulerHook", (None, "epoch"), {}),
        ("LogScalar", (), {"reduction": "median"}),
        ("MiniBatches", (0,), {}),
        ("MiniBatches", (3,), {"sequences": 0}),
        ("OptimizerHook", (UNUSED, []), {}),
        ("OptimizerHook", (UNUSED, "loss_actor"), {}),
        ("PolicySnapshot", (None, "CartPole-v1", "runs/a"), {}),
        ("PolicySnapshot", (None, "CartPole-v1", "runs/a"), {"snapshots": 1}),
        ("PolicySnapshot", (None,), {"snapshots": 3}),
        *(("Profiler", ("x",), {name: -1}) for name in ("active", "warmup")),
        ("RandomNetworkDistillation", (3,), {"coeff": -1.0}),
        *(("RewardNormalizer", (decay,), {}) for decay in (0.0, 1.5, NAN)),
        ("RewardScaler", (1.5,), {}),
        ("SaveOnBest", (), {"mode": "highest"}),
        ("SelectKeys", ("action",), {}),
        ("SymmetryAugmentation", (dict,), {"augment": False}),
        ("SymmetryAugmentation", ([],), {}),
        ("SymmetryAugmentation", (dict,), {"mirror_coeff": -1}),
        ("Tracer", ("trace.json", 0), {}),
        ("UpdateWeights", (), {}),
        ("UpdateWeights", (UNUSED,), {"sender": UNUSED}),
        ("UpdateWeights", (UNUSED, 0), {}),
        ("UpdateWeights", (UNUSED,), {"interval_unit": "frames"}),
        ("UpdateWeights", (), {"sender": UNUSED, "weight_update_map": {"a": "b"}}),
        ("UpdateWeights", (), {"sender": UNUSED, "policy_weights_getter": dict}),
    ],
)
def test_impossible_arguments_are_refused(name, arguments, options):
    with pytest.raises(ConfigError):
        HOOKS[name](*arguments, **options)


@pytest.mark.parametrize("name", ["EarlyStopping", "MiniBatches", "SaveOnBest"])
def test_without_a_trainer_the_error_names_register(name):
    with pytest.raises(HookError, match=rf"{name}\(\.\.\.\)\.register\(trainer\)"):
        prepare(name)[0](TensorDict({"x": torch.zeros(8)}, [8]))


@pytest.mark.parametrize("name", [n for n in HOOKS if hasattr(torchrl.trainers, n)])
def test_it_takes_torchrls_arguments(name):
    theirs = getattr(torchrl.trainers, name)
    for method in ("__init__", "register"):
        their = inspect.signature(inspect.unwrap(getattr(theirs, method))).parameters
        our = inspect.signature(getattr(HOOKS[name], method)).parameters
        wanted = [
            p
            for p, parameter in their.items()
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            and (name, p) != ("LogValidationReward", "recorder")  # torchrl deprecated it
        ]
        assert [p for p in our if p in wanted] == wanted


def test_a_collector_is_not_changed_by_hooks_that_only_look():
    lookers = ("CountFramesLog", "LogScalar", "EarlyStopping", "UTDRHook", "LogTiming")
    batch = next(iter(FakeCollector()))
    before = batch.clone()
    for name in lookers:
        hook, trainer = prepare(name)
        trainer.collector = [batch]
        hook.register(trainer)
        trainer.train()
    assert (batch == before).all()
