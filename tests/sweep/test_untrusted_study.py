"""Studies that others made, or that were damaged, and trials whose study is lost."""

from __future__ import annotations

import json
import math

import optuna
import pytest
from optuna.storages.journal._base import BaseJournalSnapshot
from small_sweep import make, results, swept

from hooktrainer import ConfigError
from hooktrainer.store.lookup import SWEEP_FILE


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    """The lines of a sweep of three trials that trained nothing."""
    place = tmp_path_factory.mktemp("journal")
    sweep = make(place)
    for value in (1.0, None, 3.0):
        claim = sweep._ledger.take()
        claim.trial.report(0.5, 32)
        sweep._ledger.finish(claim, value)
    sweep.close()
    return (place / "study.journal").read_text()


def opened(place, journal):
    (place / "study.journal").write_text(journal)
    sweep = make(place)
    sweep.close()
    return sweep


def changed(journal, change):
    lines = [json.loads(line) for line in journal.splitlines()]
    for line in lines:
        change(line)
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.pop("op_code"),
        lambda one: one.update(op_code=99),
        lambda one: one.update(directions=[1]),
        lambda one: one.update(directions=[2, 2]),
        lambda one: one.update(distribution="{}"),
        lambda one: one.update(param_name="../x"),
        lambda one: one.update(param_value_internal=1e9),
        lambda one: one.update(values=[]),
        lambda one: one.update(values=["x"]),
        lambda one: one.update(values=[1.0, 2.0]),
        lambda one: one.update(values=[math.nan]),
        lambda one: one.update(values=[math.inf]),
        lambda one: one.update(step="x"),
        lambda one: one.update(intermediate_value="x"),
        lambda one: one.update(op_code=8) if one.get("param_name") == "lr" else None,
        lambda one: one.update(user_attr={"settings": ["x"]}),
        lambda one: one.update(user_attr={"settings": {"\x1b[2J": "x\ny"}}),
        lambda one: one.update(user_attr={"beat": "soon"}),
        lambda one: one.update(user_attr={"frames": "many"}),
        lambda one: one.update(user_attr={"finals": [1]}),
        lambda one: one.update(datetime_start="0001-01-01T00:00:00"),
    ],
)
def test_a_study_that_no_sweep_wrote_is_refused_in_a_line(change, journal, tmp_path):
    with pytest.raises(ConfigError) as caught:
        opened(tmp_path, changed(journal, change))
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("text", ["[]\n", "{\n{}\n", "\0\0\n", "name: ppo\n", "[" * 9999 + "\n"])
def test_a_damaged_journal_is_called_that(text, journal, tmp_path):
    with pytest.raises(ConfigError, match=r"study\.journal is damaged") as caught:
        opened(tmp_path, text + journal)
    assert str(caught.value).isprintable()
    assert (tmp_path / "study.journal").read_text() == text + journal


def test_a_journal_that_is_a_link_is_not_written_through(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("no newline at its end")
    for name in ("study.journal", SWEEP_FILE):
        place = tmp_path / name.strip(".")
        place.mkdir()
        (place / name).symlink_to(precious)
        with pytest.raises(ConfigError, match=name):
            swept(place)
        assert precious.read_text() == "no newline at its end"


def test_a_trial_is_not_trained_through_a_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    sweep = make(tmp_path / "sweep")
    (tmp_path / "sweep/trial0").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="trial0 is a link"):
        sweep.run()
    sweep.close()
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.slow
def test_trials_whose_study_is_lost_are_taken_up(tmp_path):
    first = [row[:4] for row in results(swept(tmp_path, trials=3, seeds=1))]
    runs = {path: path.read_bytes() for path in tmp_path.glob("trial*/seed*/metrics.csv")}
    (tmp_path / "study.journal").unlink()
    (tmp_path / "trial7").mkdir()  # of which nothing is known
    again = make(tmp_path, trials=3, seeds=1)
    try:
        again.run()
        assert [row[:4] for row in results(again)] == first
    finally:
        again.close()
    assert {path: path.read_bytes() for path in runs} == runs


def test_a_snapshot_of_a_journal_is_not_unpickled(tmp_path, monkeypatch):
    class Redis(optuna.storages.journal.JournalFileBackend):
        def __init__(self, url):
            super().__init__(str(tmp_path / "entries"))

        def load_snapshot(self):
            raise AssertionError("it would be unpickled")

        save_snapshot = load_snapshot

    BaseJournalSnapshot.register(Redis)
    monkeypatch.setattr(optuna.storages.journal, "JournalRedisBackend", Redis)
    make(tmp_path, storage="redis://nowhere").close()
    assert (tmp_path / "entries").stat().st_size
