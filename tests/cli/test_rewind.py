"""`hooktrainer rewind`, `bisect` and `branch`: replays of a run from its checkpoints."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from outcomes import same
from warm_python import run as run_python

from hooktrainer.show import summarize
from hooktrainer.show.report.grouping import branches
from hooktrainer.store import Checkpoint, find, list_checkpoints
from hooktrainer.store.provenance import sign_command
from hooktrainer.store.run_dir import RunDir

SCRIPT = Path(__file__).with_name("planted.py")
OPTIONS = [
    *("--env", "CartPole-v1", "--no-tuned", "--num-cells", "8", "--num-envs", "4"),
    *("--steps-per-batch", "32", "--num-epochs", "2", "--mini-batch-size", "32"),  # 8 steps a batch
    *("--eval-episodes", "0", "--save-interval", "256", "--keep-last", "9", "--logger", "csv"),
    *("--no-progress-bar", "--total-frames", "1280"),
]


def train(run: Path, *options: object) -> None:
    words = [*OPTIONS, "--run-dir", str(run), *options]
    done = run_python(SCRIPT, *words, where=run.parent)
    assert done.returncode == ("--nan-at" in options), done.stderr


def hooktrainer(*words: object):
    return run_python("-m", "hooktrainer", *words, where=Path.cwd())


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run of ten batches, with checkpoints after every second one."""
    run = tmp_path_factory.mktemp("runs") / "a"
    train(run, "--fall-at", 57)
    assert [c.manifest.optim_steps for c in saved(run)] == [16, 32, 48, 64, 80]
    return run


def saved(run: Path) -> list[Checkpoint]:
    return list_checkpoints(run / "checkpoints").checkpoints


def weights(run: Path) -> dict:
    state = Checkpoint.open(find(run)[0]).load()["components"]["loss_module"]
    return {name: value for name, value in state.items() if name != "_extra_state"}


def same_weights(one: Path, other: Path) -> bool:
    return same(weights(one), weights(other))


def test_a_replay_stops_after_any_step_with_the_same_bits(run, tmp_path):
    near, far = tmp_path / "near", tmp_path / "far"
    done = hooktrainer("rewind", run, "--to", 43, "--into", near)
    assert done.returncode == 0, done.stderr
    assert "optim_steps > 43 holds at optimizer step 44, after 768 frames" in done.stdout
    hooktrainer("rewind", f"{run}@256", "--to", 43, "--into", far)
    assert RunDir(near).read()["optim_steps"] == RunDir(far).read()["optim_steps"] == 43
    assert same_weights(near, far)
    whole = tmp_path / "whole"
    hooktrainer("rewind", f"{run}@768", "--to", 64, "--into", whole, "--", "--trace", 2)
    shutil.copytree(
        run / "checkpoints" / "step_000000001024", tmp_path / "at" / "step_000000001024"
    )
    assert same_weights(whole, tmp_path / "at" / "step_000000001024")
    assert (whole / "trace.json").is_file()
    assert len(saved(run)) == 5  # the run itself is as it was


def test_a_run_that_was_extended_is_replayed_with_the_options_of_then(tmp_path):
    run, copy = tmp_path / "a", tmp_path / "copy"
    train(run, "--anneal-lr", "--total-frames", 640)
    train(run, "--anneal-lr", "--resume", "latest")
    done = hooktrainer("rewind", f"{run}@256", "--to", 32, "--into", copy)
    assert done.returncode == 0, done.stderr
    at = shutil.copytree(run / "checkpoints/step_000000000512", tmp_path / "step_000000000512")
    assert same_weights(copy, at)


def test_a_replay_goes_on_to_the_end(run, call, tmp_path):
    (run / "mlflow.json").write_text("{}")  # of a run on a server, which stays the original's
    done = hooktrainer("rewind", f"{run}@512", "--into", tmp_path / "copy")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "copy" / "mlflow.json").exists()
    (run / "mlflow.json").unlink()
    assert call("ckpt", "diff", f"{run}@1280", f"{tmp_path / 'copy'}@1280").code == 0


def test_a_step_that_was_passed_and_a_directory_that_is_taken_are_refused(run, call, tmp_path):
    done = call("rewind", f"{run}@512", "--to", 31)
    assert (done.code, "--to 31" in done.err, "step 32" in done.err) == (2, True, True)
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "file").touch()
    done = call("rewind", run, "--to", 31, "--into", tmp_path / "copy")
    assert (done.code, "is there already" in done.err) == (2, True)


def test_a_step_after_the_end_and_a_copy_inside_the_run_are_refused(run, call, tmp_path):
    done = call("rewind", run, "--to", 81, "--into", tmp_path / "copy")
    assert (done.code, "ended after optimizer step 80" in done.err) == (2, True)
    done = call("rewind", run, "--to", 31, "--into", run / "checkpoints" / "copy")
    assert (done.code, "is inside the run" in done.err) == (2, True)


def test_a_replay_that_is_refused_leaves_no_copy(run, call, tmp_path):
    done = hooktrainer("rewind", f"{run}@512", "--into", tmp_path / "copy", "--", "--lrr", 1)
    assert (done.returncode, "--lrr" in done.stderr) == (2, True)
    foreign = tmp_path / "foreign"
    shutil.copytree(run, foreign)
    state = json.loads((foreign / "run.json").read_text())
    (foreign / "run.json").write_text(json.dumps({**state, "cwd": "/"}))
    done = call("rewind", f"{foreign}@512", "--into", tmp_path / "copy")
    assert (done.code, "add --trust" in done.err) == (2, True)
    assert not (tmp_path / "copy").exists()


def test_a_replay_to_a_step_takes_another_condition_as_well(run, tmp_path):
    words = ["rewind", run, "--to", 43, "--into"]
    hooktrainer(*words, tmp_path / "to", "--", "--stop-when", "frames > 900")
    assert RunDir(tmp_path / "to").read()["optim_steps"] == 43
    hooktrainer(*words, tmp_path / "other", "--", "--stop-when=frames > 700")
    assert RunDir(tmp_path / "other").read()["optim_steps"] == 40


def test_a_seed_is_replayed_in_the_directory_that_is_given(tmp_path):
    train(tmp_path / "many", "--seeds", "1-1")
    done = hooktrainer("rewind", tmp_path / "many/seed1", "--to", 20, "--into", tmp_path / "copy")
    assert done.returncode == 0, done.stderr
    assert RunDir(tmp_path / "copy" / "seed1").read()["optim_steps"] == 20
    assert {one.name for one in tmp_path.iterdir()} == {"many", "copy"}
    assert RunDir(tmp_path / "many" / "seed1").read()["optim_steps"] == 80


@pytest.mark.usefixtures("warm_python")
def test_what_stopped_a_run_is_found(call, tmp_path):
    condition = "loss < 1e9 & optim_steps > 26"
    train(tmp_path / "stopped", "--stop-when", condition)
    done = call("bisect", tmp_path / "stopped", "--where", condition)
    assert done.code == 0, done.err
    assert "from 256 frames to 512 frames" in done.err
    assert "holds at optimizer step 27, after 512 frames" in done.out


@pytest.mark.usefixtures("warm_python")
def test_a_number_of_batches_is_found(run, call):
    done = call("bisect", run, "--where", "batches > 6", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["frames"] == 896
    assert "from 768 frames to 1,024 frames" in done.err


@pytest.mark.usefixtures("warm_python")
def test_the_step_of_a_fall_is_found(run, call):
    done = call("bisect", run, "--where", "mine/level < 0.5 & frames > 0", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["optim_steps"], found["frames"]) == (57, 1024)
    assert "from 768 frames to 1,024 frames" in done.err
    assert "holds at optimizer step 58, after 1,024 frames: mine/level = 0" in found["reason"]


@pytest.mark.usefixtures("warm_python")
def test_the_step_of_a_nan_is_found_with_what_made_it(call, tmp_path):
    train(tmp_path / "nan", "--nan-at", 43)
    assert [c.manifest.optim_steps for c in saved(tmp_path / "nan")] == [16, 32]
    keep = tmp_path / "keep"
    done = call("bisect", tmp_path / "nan", "--where", "not finite(loss)", "--keep", keep)
    assert done.code == 0, done.err
    assert done.out.startswith("not finite(loss) holds at optimizer step 44, after 768 frames: ")
    assert "= nan" in done.out
    assert "not finite: parameter " in done.out
    assert "first after optimize/plant of optimizer step 43" in done.out
    assert RunDir(keep / "nan").read()["optim_steps"] == 43


@pytest.mark.usefixtures("warm_python")
def test_from_the_first_step_on_it_is_found_from_the_start(run, call):
    done = call("bisect", run, "--where", "mine/level < 2")
    assert done.code == 0, done.err
    assert "from the start to 256 frames" in done.err
    assert "holds at optimizer step 2, after 128 frames" in done.out


def test_what_never_holds_is_told(run, call):
    done = call("bisect", run, "--where", "mine/level > 2")
    assert done.code == 1
    assert "does not hold at the last checkpoint" in done.out


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        ("mine/levl > 2 & frames > 0", "has no metric mine/levl. Did you mean mine/level?"),
        ("not (nothing > 2)", "has no metric nothing. It has loss/critic, "),  # would hold anyway
    ],
)
def test_a_condition_on_no_metric_of_the_run_is_refused(run, call, condition, hint):
    done = call("bisect", run, "--where", condition)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert hint in done.err


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("loss >", "a number is missing before its end"),
        ("loss 3", "a comparison such as '<' is missing before '3'"),
        ("(loss > 3", "')' is missing"),
        ("finite(3)", "a name is missing before '3'"),
        ("loss > 3 4", "'4' is left over"),
        ("loss $ 3", "'$ 3' is neither"),
        ("", "a name is missing"),
        ("(" * 2_000 + "loss > 3", "too many parentheses"),
    ],
)
def test_a_condition_that_cannot_be_read_is_refused(run, call, condition, problem):
    done = call("bisect", run, "--where", condition)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert problem in done.err
    assert "train/return < 100" in done.err


def test_a_branch_is_named_by_what_differs(run):
    words = "branch", f"{run}@512", "--lr", "1e-4", "--total-frames", 640
    done = hooktrainer(*words)
    assert done.returncode == 0, done.stderr
    place = run.with_name("a-512-lr-1e-4-total-frames-640")
    state = RunDir(place).read()
    assert (state["forked_from"]["frames"], state["frames"]) == (512, 640)
    assert RunDir(place).read_config()["lr"] == 1e-4
    (line,) = branches([summarize(RunDir(one), None) for one in (run, place)])[1:]
    assert line == f"└ at 512, lr 0.0001: {place}"
    again = hooktrainer(*words)
    assert (again.returncode, "already holds a run" in again.stderr) == (2, True)
    shutil.rmtree(place / "checkpoints")
    RunDir(place).update(status="failed", frames=0)  # as one that could not begin
    assert hooktrainer(*words).returncode == 0


@pytest.fixture
def branched(make_run) -> Path:
    """A branch without checkpoints of its own, of a checkpoint of optimizer step 1."""
    parent = Checkpoint.open(find(f"{make_run('parent')}@100")[0])
    run = RunDir(make_run("branch"))
    shutil.rmtree(run.checkpoints)
    state = {"script": __file__, "argv": ["--lr", "1", "--fork", "gone"], "cwd": "/nowhere"}
    signed = state | {"signature": sign_command(state), "forked_from": parent.as_parent()}
    run.run_file.write_text(json.dumps(signed))
    return run.path


def test_a_branch_is_replayed_from_where_it_branched_off(call, branched):
    done = call("rewind", branched, "--to", 7)
    parent = branched.with_name("parent") / "checkpoints" / "step_000000000100"
    words = f"--lr 1 --run-dir {branched}-from-0 --fork {parent} --stop-when 'optim_steps > 7'"
    assert words in done.err
    done = call("rewind", branched, "--to", 0)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert f"--to 0: {branched} branched off {parent} after optimizer step 1." in done.err


def test_a_step_before_the_first_is_refused(call, branched):
    assert "--to=-1: pass an integer of 0 or more" in call("rewind", branched, "--to", -1).err
