"""Every kind of policy that algorithms train is exported, and the export acts as it does."""

from __future__ import annotations

import pytest
from marks import slow_except
from test_algorithms import make
from test_init_policy import ACTING, closing, evaluation, save  # noqa: F401 - a fixture

from hooktrainer.policies import export_policy

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

# Whose policies are those of PPO, IQL, SAC, TD3, MAPPO and QMIX.
ALIKE = ("a2c", "reinforce", "trpo", "bc", "cql", "mbpo", "dagger", "ddpg", "ippo", "vdn")


@pytest.mark.parametrize(
    ("name", "options"),
    slow_except(
        [
            *((name, {}) for name in [*ACTING, "dreamer"] if name not in ALIKE),
            *((name, {"memory": "gru"}) for name in ("ppo", "dqn", "sac", "mappo")),
            ("ppo", {"memory": "transformer", "memory_length": 4}),
            ("ppo", {"normalize_observations": True}),
            *(("dqn", {"quantiles": kind}) for kind in ("qr", "iqn", "c51")),
            ("dqn", {"dueling": True, "noisy": True}),
            *(("sac", {"critics": kind}) for kind in ("crossq", "xqc")),
        ],
        ("dqn", {"quantiles": "qr"}),
    ),
)
def test_its_policy_is_exported_and_acts_alike(name, options, tmp_path, closing):  # noqa: F811
    if options.get("memory"):
        options = {"sequence_length": 8, "burn_in": 2, **options}
        if name in ("ppo", "mappo"):
            options = {"memory": options["memory"]}
    trainer = closing(make(name, seed=1, **options))
    saved = save(trainer, tmp_path / "first")
    env = evaluation(trainer).env
    made = env() if callable(env) else None
    contract = export_policy(saved, tmp_path / "policy.onnx", observations=30, env=made, trust=True)
    assert contract.largest_difference < 1e-4
    assert contract.observations == 30
