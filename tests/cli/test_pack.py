"""`hooktrainer pack`: what is in the file, and where it can be pushed."""

from __future__ import annotations

import base64
import json
import shutil
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import yaml
from finished_runs import write_run

from hooktrainer.loop import Progress
from hooktrainer.networks import CategoricalPolicy, mlp
from hooktrainer.policies import PolicyRecorder, evaluate_run, find_policy


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with policies at 0 and 100 frames, both played."""
    path = write_run(tmp_path_factory.mktemp("original") / "a", experiment="ppo", seed=3).path
    for frames in (0, 100):
        network = CategoricalPolicy(mlp(4, 2, (8,)))
        recorder = PolicyRecorder(path / "policies", network, "CartPole-v1", run_id="0" * 16)
        recorder.save(Progress(frames=frames, seconds=frames / 10))
    assert len(list(evaluate_run(path, seed=3, episodes=6))) == 2
    return path


@pytest.fixture
def run(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that run, below the current directory."""
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(original, Path("runs/a"))


def records(file: Path) -> dict[str, str]:
    with zipfile.ZipFile(file) as archive:
        return {n: archive.read(n).decode() for n in archive.namelist() if n[-4:] != "sors"}


def test_a_run_is_packed_with_its_best_policy_and_played_as_recorded(call, run):
    done = call("pack", run)
    assert (done.code, done.out.split(":")[0]) == (0, "a.hook")
    best = find_policy(f"{run}@best")
    assert f"policy at {best.frames} frames" in done.out
    assert find_policy("a.hook").evaluation == best.evaluation
    played = call("play", "a.hook")
    assert played.code == 0
    assert "the same as recorded" in played.out
    assert call("play", "a.hook", "--seed", 7, "--episodes", 1).code == 0
    assert "CartPole-v1" in call("policies", "show", "a.hook").out
    call("pack", f"{run}@0", "-o", "out/first.hook")
    assert find_policy("out/first.hook").frames == 0


def test_the_card_tells_task_return_and_license_and_the_file_nothing_of_the_machine(call, run):
    (run / "gallery.html").write_text("<p>a page</p>")
    assert call("pack", run, "--license", "mit").code == 0
    found = records(Path("a.hook"))
    _, front, card = found["README.md"].split("---\n", 2)
    told, best = yaml.safe_load(front), find_policy("a.hook").evaluation
    assert told["license"] == "mit"
    (result,) = told["model-index"][0]["results"]
    assert result["dataset"]["name"] == "CartPole-v1"
    assert result["metrics"][0]["value"] == f"{best.mean:.2f} +/- {best.std:.2f}"
    assert "# ppo on CartPole-v1" in card
    assert "6 episodes, seed 3); interquartile mean" in card
    assert "95 % interval" in card
    assert "| seed | 3 |" in card
    assert "$ hooktrainer play a.hook" in card
    assert "| license | mit |" in card
    assert found["gallery.html"] == "<p>a page</p>"
    assert found["metrics.csv"] == (run / "metrics.csv").read_text()
    state = json.loads((run / "run.json").read_text())
    kept = json.loads(found["run.json"])
    assert kept.items() <= state.items()
    assert not {"pid", "host", "cwd", "script", "argv", "signature"} & kept.keys()
    (run / "gallery.html").unlink()
    call("pack", run)
    assert "gallery.html" not in str(records(Path("a.hook")))
    assert "license" not in records(Path("a.hook"))["README.md"]


def cart_pole() -> gym.Env[Any, Any]:
    return gym.make("CartPole-v1")


def test_commands_have_trust_where_the_environment_needs_code(call, run):
    network = CategoricalPolicy(mlp(4, 2, (8,)))
    recorder = PolicyRecorder(run / "policies", network, cart_pole, run_id="0" * 16)
    recorder.save(Progress(frames=200))
    done = call("pack", f"{run}@200")
    assert done.out.endswith("; hooktrainer play a.hook --trust plays it\n")
    assert "$ hooktrainer play a.hook --trust\n" in records(Path("a.hook"))["README.md"]
    listed = call("policies", "list", run).out
    assert "hooktrainer play runs/a@FRAMES --trust plays one" in listed
    assert "hooktrainer policies evaluate runs/a --trust plays the rest" in listed
    shown = call("policies", "show", f"{run}@200").out
    assert shown.endswith("hooktrainer policies evaluate runs/a --trust\n")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["-o", "a.zip"], "a.zip: choose a name that ends in .hook"),
        (["--push", "s3://a/b"], "--push s3://a/b: give hf://USER/NAME or mlflow://NAME"),
        (["--push", "hf://name"], "--push hf://name: give hf://USER/NAME"),
        (["--push", "mlflow://a'b"], "give hf://USER/NAME or mlflow://NAME"),
    ],
)
def test_mistakes_are_said_before_anything_is_written(words, reason, call, run):
    done = call("pack", run, *words)
    assert done.code == 2
    assert reason in done.err
    assert not list(Path().glob("*.hook"))


@pytest.mark.parametrize(
    ("package", "target", "install"),
    [
        ("huggingface_hub", "hf://me/a", "pip install 'huggingface_hub'"),
        ("mlflow", "mlflow://a", "pip install 'hooktrainer[mlflow]'"),
    ],
)
def test_a_missing_package_is_named(package, target, install, call, run, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    done = call("pack", run, "--push", target)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert install in done.err
    assert not Path("a.hook").exists()


# -- Hugging Face: a server that takes what its client sends.


class FakeHub(BaseHTTPRequestHandler):
    """Answers the requests that create a repository, check its card and commit files."""

    calls: list[tuple[str, Any]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        lines = [json.loads(line) for line in body.splitlines()]
        self.calls.append((self.path, lines))
        assert self.headers["Authorization"] == "Bearer hf_secret"
        if self.path == "/api/repos/create":
            if lines[0]["name"] == "taken":
                return self.answer({"error": "it is not yours"}, 403)
            return self.answer({"url": f"http://{self.headers['Host']}/me/cart"})
        if "/preupload/" in self.path:
            told = {"uploadMode": "regular", "shouldIgnore": False}
            return self.answer({"files": [{"path": f["path"]} | told for f in lines[0]["files"]]})
        if self.path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        address = f"http://{self.headers['Host']}/me/cart/commit/0"
        return self.answer({"commitUrl": address, "commitOid": "0" * 40})

    def answer(self, content: Any, code: int = 200) -> None:
        data = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, Any]]]:
    """A hub; what it was asked."""
    FakeHub.calls = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeHub)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    yield FakeHub.calls
    server.shutdown()
    server.server_close()


def test_a_push_to_a_hub_commits_card_and_file_to_a_private_repository(call, run, hub):
    done = call("pack", run, "--push", "hf://me/cart")
    assert done.code == 0, done.err
    assert done.out.endswith("/me/cart\n")
    (create, asked), *_, (commit, lines) = hub
    assert create == "/api/repos/create"
    assert asked == [{"organization": "me", "name": "cart", "visibility": "private"}]
    assert commit == "/api/models/me/cart/commit/main"
    files = {
        line["value"]["path"]: base64.b64decode(line["value"]["content"])
        for line in lines
        if line["key"] == "file"
    }
    assert files.keys() == {"README.md", "a.hook"}
    assert files["a.hook"] == Path("a.hook").read_bytes()
    assert files["README.md"].decode() == records(Path("a.hook"))["README.md"]


def test_a_refused_push_is_one_line_and_the_file_stays(call, run, hub):
    done = call("pack", run, "--push", "hf://me/taken")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "a.hook is not pushed to hf://me/taken: " in done.err
    assert "it is not yours" in done.err
    assert Path("a.hook").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of MLflow's data base
def test_a_push_to_mlflow_registers_versions_that_play(call, run, monkeypatch):
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{Path.cwd()}/mlflow.db")
    for version in (1, 2):
        done = call("pack", run, "--push", "mlflow://cart-pole")
        assert done.code == 0, done.err
        assert f"models:/cart-pole/{version} in sqlite" in done.out
    place = mlflow.artifacts.download_artifacts("models:/cart-pole/2")
    file = Path(place) / "a.hook"
    assert file.read_bytes() == Path("a.hook").read_bytes()
    assert call("play", file).code == 0


@pytest.mark.parametrize("name", ["gallery.html", "config.yaml", "metrics.csv"])
def test_a_link_out_of_the_run_is_not_packed(name, call, run):
    Path("secret").write_text("of mine")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(Path("secret").absolute())
    done = call("pack", run)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert f"runs/a is not packed: {name} is a link out of its directory" in done.err
    assert not Path("a.hook").exists()


def test_why_a_run_failed_is_left_out(call, run):
    state = json.loads((run / "run.json").read_text())
    reason = {"status": "failed", "reason": "OSError: No space left on device: '/home/me/a'"}
    (run / "run.json").write_text(json.dumps(state | reason))
    assert call("pack", run).code == 0
    assert b"/home/me" not in Path("a.hook").read_bytes()
