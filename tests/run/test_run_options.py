"""Every option is a means of a run, or a part of what is run."""

from __future__ import annotations

from dataclasses import fields

from hooktrainer.run.run_options import FREE_AMONG_SEEDS, FREE_ON_RESUME, RunArgs


def test_every_option_is_classified():
    names = {field.name for field in fields(RunArgs)}
    assert names - FREE_ON_RESUME == {"seed", "log_interval", "save_interval", "overlap"}
    assert names - FREE_AMONG_SEEDS == {"overlap"}
    assert (FREE_ON_RESUME | FREE_AMONG_SEEDS) - names == {"total_frames"}  # every recipe's own
