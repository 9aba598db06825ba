"""Every recipe computes where its run says, as ``--placement 'learner: gpu:0'`` asks.

The device is ``meta`` here, on which tensors have shapes and no data, so no accelerator is needed:
the recipe builds everything there, and stops before it trains.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from hooktrainer import Evaluate, ModelRollouts, ReplayBufferTrainer, Trainer
from hooktrainer.data import DataCollector, Dataset
from hooktrainer.errors import MissingPackageError

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.py"))
TRAINED = [recipe for recipe in RECIPES if "mjlab" not in recipe.stem]  # test_mjlab_cartpole.py
META = torch.device("meta")


class MetaRun:
    """Stands for `Run`: hands out a device, and keeps the trainer instead of training it."""

    def __init__(self, *_: object, **__: object) -> None:
        self.device = META
        self.trainer_options = {"progress_bar": False}
        MetaRun.newest = self

    def train(self, trainer: Trainer) -> None:
        self.trainer = trainer


def load(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The recipe as a module."""
    spec = importlib.util.spec_from_file_location(recipe.stem, recipe)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, recipe.stem, module)  # where its dataclass looks for names
    spec.loader.exec_module(module)
    return module


def write_dataset(path: Path) -> None:
    number = 40
    flags = torch.zeros(number, 1, dtype=torch.bool)
    following = {
        "observation": torch.zeros(number, 3),
        "reward": torch.zeros(number, 1),
        "terminated": flags,
        "truncated": flags,
    }
    entries = {
        "observation": torch.zeros(number, 3),
        "action": torch.zeros(number, 1),
        "next": TensorDict(following, batch_size=[number]),
    }
    Dataset(TensorDict(entries, batch_size=[number]), [], "Pendulum-v1").save(path)


def devices(tensors: Any) -> set[torch.device]:
    return {tensor.device for tensor in tensors}


@pytest.mark.parametrize("recipe", TRAINED, ids=lambda recipe: recipe.stem)
def test_a_recipe_computes_on_the_device_of_its_run(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = load(recipe, monkeypatch)
    monkeypatch.setattr(module, "Run", MetaRun)
    given = {}
    if hasattr(module.Args, "dataset") and recipe.stem != "collect_pendulum":
        write_dataset(tmp_path / "data")
        given = {"dataset": str(tmp_path / "data")}
    args = module.Args(**given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # an error would crash Box2D's import
        try:
            module.main(args)
        except MissingPackageError as error:
            pytest.skip(str(error))
    trainer = MetaRun.newest.trainer
    loss_module, collector = trainer.loss_module, trainer.collector
    assert devices([*loss_module.parameters(), *loss_module.buffers()]) == {META}
    for group in trainer.optimizer.param_groups:
        assert devices(group["params"]) == {META}
    if isinstance(collector, DataCollector):
        assert next(iter(collector)).device == META
    else:
        assert devices(collector.policy.parameters()) == {META}
    for hook in trainer.registry.modules.values():
        if isinstance(hook, Evaluate):
            assert devices(hook.policy.parameters()) == {META}
        if isinstance(hook, ReplayBufferTrainer):
            assert hook.replay_buffer.device == META
        if isinstance(hook, ModelRollouts):
            assert hook.model_buffer.device == META
            assert devices(hook.dynamics.parameters()) == {META}
    trainer.shutdown()
