"""Policies of classic control act in the page as in Python, and recover when they are pushed."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from browser import CHROMIUM, dump
from gymnasium import spaces
from saved_runs import BALANCES, Silent, Threshold
from torch import nn

from hooktrainer import load_policy
from hooktrainer.loop import Progress
from hooktrainer.networks import (
    CategoricalPolicy,
    DeterministicPolicy,
    LSTMMemory,
    MemoryTrunk,
    Policy,
    QNetwork,
    RunningNorm,
    distribution_for,
    mlp,
)
from hooktrainer.networks.q_heads import DuelingHead
from hooktrainer.policies import PolicyRecorder, evaluate_policy, list_policies
from hooktrainer.show.gallery.play import WORLDS, playground
from hooktrainer.show.html import document

TORQUE = spaces.Box(-2.0, 2.0, (1,), np.float32)
PROBE = """<script>addEventListener("load", () => {
const found = document.createElement("pre"); found.id = "found";
try { found.textContent = JSON.stringify((given => {%s})(%s)); }
catch (error) { found.textContent = JSON.stringify(String(error.stack)); }
document.body.append(found); });</script>"""


def exhibits(place: Path, env: Any, policies: Mapping[int, nn.Module]) -> list[Any]:
    """Saved policies by frames, as exhibits without a film."""
    for frames, policy in policies.items():
        PolicyRecorder(place / "policies", policy, env).save(Progress(frames=frames))
    return [
        SimpleNamespace(saved=saved, frames=saved.frames, evaluation=saved.evaluation)
        for saved in (evaluate_policy(one, episodes=1, trust=True) for one in list_policies(place))
    ]


def in_page(shown: list[Any], probe: str, given: Any, place: Path) -> Any:
    """What a function of ``given`` finds in the page."""
    section, script = playground(shown)
    assert "Not played" not in section, re.findall(r"Not played[^<]*", section)
    page = document("play", [section], "", script)
    told = json.dumps(given).replace("<", "\\u003c")
    file = place / "page.html"
    file.write_text(page.replace("<head>", f"<head>{PROBE % (probe, told)}"), encoding="utf-8")
    made, logged = dump(file, place)
    match = re.search(r'<pre id="found">(.*?)</pre>', made, re.DOTALL)
    assert match is not None, logged
    assert [line for line in logged.splitlines() if "CONSOLE" in line] == []
    found = json.loads(html.unescape(match[1]))
    assert not isinstance(found, str), found
    return found


def balancing() -> nn.Module:
    """A linear policy that keeps CartPole's pole up."""
    layer = nn.Linear(4, 2)
    layer.load_state_dict(
        {"weight": torch.tensor([[0.0] * 4, [*BALANCES]]), "bias": torch.zeros(2)}
    )
    return CategoricalPolicy(layer)


def leaving() -> nn.Module:
    """A linear policy that always goes left."""
    layer = nn.Linear(4, 2)
    layer.load_state_dict({"weight": torch.zeros(2, 4), "bias": torch.tensor([1.0, 0.0])})
    return CategoricalPolicy(layer)


def norm(size: int) -> RunningNorm:
    made = RunningNorm(size)
    made.update(1.0 + 2.0 * torch.randn(100, size))
    return made


def discrete() -> dict[int, nn.Module]:
    dueling = DuelingHead(nn.Linear(8, 3), nn.Linear(8, 6), 3)
    layers = [nn.Linear(4, 8), nn.LayerNorm(8), nn.ELU(), nn.Linear(8, 8), nn.SiLU()]
    made: dict[int, nn.Module] = {
        0: balancing(),
        1: CategoricalPolicy(nn.Sequential(norm(4), *mlp(4, 2, (16, 16)))),
        2: QNetwork(nn.Sequential(*layers, nn.Linear(8, 2))),
        3: QNetwork(
            nn.Sequential(nn.Linear(4, 8), nn.ReLU()),
            head=nn.Sequential(dueling, nn.Unflatten(-1, (2, 3)), nn.Softmax(-1), Mean()),
        ),
    }
    for policy in list(made.values())[1:]:
        for weight in policy.parameters():
            weight.data *= 4  # so that it does not always act alike
    return made


class Mean(nn.Module):
    """The mean of a distribution over three atoms."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("atoms", torch.tensor([-1.0, 0.5, 2.0]))

    def forward(self, chances: torch.Tensor) -> torch.Tensor:
        return (chances * self.atoms).sum(-1)


def continuous() -> dict[int, nn.Module]:
    squashed = distribution_for(TORQUE, "squashed")
    return {
        0: DeterministicPolicy(nn.Sequential(norm(3), *mlp(3, 1, (16,))), 1, -2.0, 2.0),
        1: Policy(mlp(3, squashed.parameter_features, (16,)), squashed),
    }


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize(
    ("env", "policies", "size"),
    [("CartPole-v1", discrete, 4), ("Pendulum-v1", continuous, 3)],
)
def test_the_page_acts_as_the_policy(
    env: str, policies: Callable[[], dict[int, nn.Module]], size: int, tmp_path: Path
) -> None:
    torch.manual_seed(2)
    shown = exhibits(tmp_path, env, policies())
    seen = np.random.default_rng(0).normal(size=(100, size)).astype("float32")
    probe = "return policies.map(act => given.map(seen => act(seen)));"
    found = in_page(shown, probe, seen.tolist(), tmp_path)
    assert len(found) == len(shown)
    for ours, exhibit in zip(found, shown, strict=True):
        theirs = load_policy(exhibit.saved)(seen).reshape(100)
        assert len(np.unique(theirs)) > 1
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def recorded(env_id: str) -> dict[str, Any]:
    """200 steps of Gymnasium: actions, and states and observations before each and at the end."""
    env = gym.make(env_id).unwrapped
    rng = np.random.default_rng(1)
    seen, _ = env.reset(seed=2)
    found: dict[str, Any] = {"states": [], "actions": [], "seen": []}
    for step in range(201):
        found["states"].append(np.asarray(env.state, np.float64).tolist())
        found["seen"].append(seen.tolist())
        if step == 200:
            return found
        if env_id == "CartPole-v1":
            action: Any = int(seen @ BALANCES > 0)
        elif isinstance(env.action_space, spaces.Box):
            action = np.float32(rng.uniform(-2.5, 2.5))
        else:
            action = rng.integers(3)
        found["actions"].append(float(action))
        taken = np.array([action], np.float32) if isinstance(action, np.float32) else int(action)
        seen, *_ = env.step(taken)
    raise AssertionError


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_the_worlds_of_the_page_are_gymnasiums(tmp_path: Path) -> None:
    given = {env: recorded(env) for env in WORLDS}
    probe = """return Object.fromEntries(Object.entries(given).map(([name, {states, actions}]) => {
      const world = WORLDS[name], found = [states[0]];
      for (const action of actions) found.push(world.step(found.at(-1), action));
      return [name, {states: found, seen: found.map(world.observe)}];
    }));"""
    shown = exhibits(tmp_path, "CartPole-v1", {0: balancing()})
    found = in_page(shown, probe, given, tmp_path)
    for env, ours in found.items():
        near = 1e-4 if env == "MountainCarContinuous-v0" else 1e-9  # its state is float32
        theirs = np.array(given[env]["states"])
        assert np.ptp(theirs, axis=0).min() > 1e-3
        np.testing.assert_allclose(ours["states"], theirs, rtol=near, atol=near, err_msg=env)
        np.testing.assert_allclose(ours["seen"], given[env]["seen"], rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_a_dragged_pole_recovers_and_keys_and_buttons_push(tmp_path: Path) -> None:
    probe = """
    const client = (x, y) => new DOMPoint(x, y).matrixTransform(svg.getScreenCTM());
    const point = (kind, x, y) => {
      const {x: clientX, y: clientY} = client(x, y);
      svg.dispatchEvent(new PointerEvent(kind, {clientX, clientY, bubbles: true}));
    };
    const steps = n => { for (let i = 0; i < n; i++) play.step(); };
    const key = name => svg.dispatchEvent(new KeyboardEvent("keydown", {key: name}));
    const found = {}, pole = angle => [Math.sin(angle), -Math.cos(angle)];
    play.state = [0, 0, 0, 0];
    point("pointerdown", ...pole(0));
    point("pointermove", ...pole(0.15));
    found.dragged = [...play.state];
    point("pointerup", ...pole(0.15));
    point("pointermove", ...pole(-0.1));
    found.released = [...play.state];
    steps(300);
    found.recovered = [...play.state, play.wait, play.steps];
    point("pointerdown", 0, 0);
    found.cart = play.held !== null;
    point("pointermove", 1.5, 0);
    found.moved = play.state[0];
    point("pointerup", 1.5, 0);
    const speed = play.state[3];
    key("ArrowRight");
    found.key = play.state[3] - speed;
    document.querySelector("[data-do=left]").click();
    found.button = play.state[3] - speed;
    key(" ");
    found.paused = [play.running, stop.textContent];
    key("r");
    found.restarted = [play.steps, told.textContent];
    choice.selectedIndex = 0;
    let fell = 0;
    for (let i = 0; i < 60; i++) { steps(1); fell = Math.max(fell, play.wait); }
    found.fell = [fell, svg.querySelectorAll("line").length];
    return found;"""
    shown = exhibits(tmp_path, "CartPole-v1", {0: leaving(), 10: balancing()})
    found = in_page(shown, probe, None, tmp_path)
    assert found["dragged"] == pytest.approx([0, 0, 0.15, 0], abs=0.01)
    assert found["released"] == found["dragged"]
    *state, wait, steps = found["recovered"]
    assert (wait, steps >= 300) == (0, True)
    assert abs(state[2]) < 0.05
    assert found["cart"]
    assert found["moved"] == pytest.approx(1.5, abs=0.05)
    assert found["key"] == pytest.approx(0.5)
    assert found["button"] == pytest.approx(0.0)
    assert found["paused"] == [False, "Go on"]
    assert found["restarted"][0] == 0
    assert found["restarted"][1].startswith("step 0 · action ")
    assert found["fell"] == [50, 2]  # a second's wait; the track and the pole are drawn


# -- What the page cannot play.


def test_only_the_pages_own_script_runs_and_names_end_no_element(tmp_path: Path) -> None:
    section, script = playground(exhibits(tmp_path, "CartPole-v1", {0: balancing()}))
    page = document("play", [section], "", script)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'\">" in page
    assert page.count("<script>") == 1
    data = re.search(r'id="play-data">(.*?)</script>', section)
    assert data is not None
    assert "<" not in data[1]
    assert "script-src" not in document("none", [""])


def remembering() -> nn.Module:
    trunk = MemoryTrunk(nn.Identity(), LSTMMemory(4, 8))
    return CategoricalPolicy(mlp(8, 2, (8,)), trunk.in_keys, trunk=trunk)


def clipped(steps: int) -> gym.Env:
    return gym.wrappers.ClipAction(gym.make("Pendulum-v1", max_episode_steps=steps))


def delayed(steps: int) -> gym.Env:
    return gym.wrappers.DelayObservation(gym.make("CartPole-v1"), steps)


@pytest.mark.parametrize(
    ("env", "policy", "why"),
    [
        ("CartPole-v1", partial(Threshold, BALANCES), "the page has no _to_copy, gt"),
        ("CartPole-v1", remembering, "it has a memory"),
        (partial(delayed, 2), balancing, "its environment is changed by gymnasium."),
        (partial(gym.make, "Pendulum-v1", g=5.0), lambda: continuous()[0], "is changed by g"),
        ("CartPole-v1", lambda: CategoricalPolicy(mlp(4, 2, (900, 900))), "more than 500,000"),
    ],
)
def test_a_policy_that_the_page_cannot_play_is_named_with_the_reason(env, policy, why, tmp_path):
    section, script = playground(exhibits(tmp_path, env, {0: policy()}))
    assert script == ""
    assert section.startswith('<p class="small">Not played here after 0 frames: ')
    assert why in section
    assert section.count("<p") == 1


def test_others_are_played_all_the_same_and_other_environments_have_no_section(tmp_path):
    both = {0: Threshold(BALANCES), 5: balancing()}
    section, script = playground(exhibits(tmp_path / "a", "CartPole-v1", both))
    assert script
    assert section.count("<option") == 1
    assert "Not played here after 0 frames" in section
    clip = exhibits(tmp_path / "b", partial(clipped, 20), {0: continuous()[0]})
    assert playground(clip)[1]
    assert playground(exhibits(tmp_path / "c", Silent, {0: Threshold((1.0, 2.0, 3.0))})) == ("", "")
