from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator

import pytest
import segment_trees


@pytest.fixture
def trees(monkeypatch):
    """TorchRL's prioritized samplers work."""
    segment_trees.use(monkeypatch)


@pytest.fixture(autouse=True)
def signal_handlers() -> Iterator[None]:
    """Take out the handlers that TorchRL's memory-mapped storages install."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """Form to where TorchRL's trainer saved it, and the parts it was saved from."""
    from saved_there import FORMS, save

    place = tmp_path_factory.mktemp("saved")
    return {form: (place / form, save(form, place / form)) for form in FORMS}


@pytest.fixture
def memmap(saved, tmp_path):
    return shutil.copytree(saved["memmap"][0], tmp_path / "memmap")


@pytest.fixture
def snapshot(saved, tmp_path):
    return shutil.copytree(saved["torchsnapshot"][0], tmp_path / "snapshot")


@pytest.fixture
def directory(saved, tmp_path):
    return shutil.copytree(saved["directory"][0], tmp_path / "directory")
