"""Fixtures of the tests of saved policies; `policy_envs` lies beside them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hooktrainer.loop import Progress
from hooktrainer.policies import LoadedPolicy, PolicyRecorder, list_policies, load_policy

sys.path.insert(0, str(Path(__file__).parent))

from policy_envs import Toy


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    """Saves a policy in a run, and returns where."""

    def save(
        policy: Any,
        env: Any = Toy,
        frames: int = 0,
        run: str = "run",
        keep: Any = None,
        **options: Any,
    ) -> Path:
        recorder = PolicyRecorder(tmp_path / run / "policies", policy, env, **options)
        recorder.save(Progress(frames=frames, optim_steps=frames // 10, seconds=1.5), keep)
        (saved,) = (one for one in list_policies(tmp_path / run) if one.frames == frames)
        return saved.path

    return save


@pytest.fixture
def reload(save: Callable[..., Path]) -> Callable[..., LoadedPolicy]:
    """Saves a policy and loads it again."""

    def reload(
        *args: Any, deterministic: bool = True, seed: int | None = None, **options: Any
    ) -> LoadedPolicy:
        path = save(*args, **options)
        return load_policy(path, deterministic=deterministic, seed=seed, trust=True)

    return reload


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[Any, Path]]:
    """Where policies are saved that `copy` copies, and the runs by what was saved."""
    return tmp_path_factory.mktemp("originals"), {}


@pytest.fixture
def copy(originals: tuple[Path, dict[Any, Path]], tmp_path: Path) -> Callable[..., Path]:
    """Saves a policy as `save` does, once for all tests of a file, each of which has a copy."""

    def copy(make: Callable[[], Any], env: Any = Toy) -> Path:
        folder, runs = originals
        if (make, env) not in runs:
            runs[make, env] = folder / str(len(runs))
            recorder = PolicyRecorder(runs[make, env] / "policies", make(), env)
            recorder.save(Progress(frames=0, optim_steps=0, seconds=1.5))
        run = shutil.copytree(runs[make, env], tmp_path / "run", symlinks=True)
        (saved,) = list_policies(run)
        return saved.path

    return copy
