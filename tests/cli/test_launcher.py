"""``--launcher slurm``: batch scripts, and requeueing at the time limit."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from outcomes import same_runs

from hooktrainer import RunDir
from hooktrainer.cli import main

SBATCH = """#!/bin/bash
[ "$1" = --parsable ] || exit 1
if grep -q 'SBATCH --partition=nowhere' "$2"; then
    echo "sbatch: error: no such partition" >&2
    exit 1
fi
echo "$2" > submitted
echo "7;cluster"
"""
SCONTROL = """#!/bin/bash
echo "$@" >> requeued
"""
PROGRAM = """
import pathlib, signal, sys, time
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
place = pathlib.Path(sys.argv[0]).parent
(place / "words").write_text(" ".join(sys.argv[1:]))
(place / "started").touch()
while not (told or (place / "over").exists()):
    time.sleep(0.01)
time.sleep(0.3 * bool(told))
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
run = pathlib.Path(options["--run-dir"], "seed" + options.get("--seeds", "0").split("-")[-1])
if told and not (place / "idle").exists():
    (run / "checkpoints/step_000000000064").mkdir(parents=True)
(place / "told").write_text(str(len(told)))
ends = place / "ends"
sys.exit(int(ends.read_text()) if ends.exists() else 143)
"""
TRAIN = [
    "train", "a2c", "--env=CartPole-v1", "--total-frames=6000", "--num-envs=2", "--num-cells", "8",
    "--steps-per-batch=8", "--eval-interval=2000", "--eval-episodes=1", "--logger=csv",
    "--save-interval=400", "--no-tuned", "--no-progress-bar",
]  # fmt: skip


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """The directory of a cluster whose programs pretend to be Slurm's."""
    place = tmp_path / "bin"
    place.mkdir()
    for name, text in (("sbatch", SBATCH), ("scontrol", SCONTROL)):
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def slurm(call, cluster, warm_python):
    """Submits a command, and returns what Slurm starts: the script."""

    def submit(*words):
        done = call(*words, "--launcher", "slurm")
        assert done.code == 0, done.err
        file = Path((cluster / "submitted").read_text().strip())
        assert done.out == f"job 7: {file}\n"

        def start(*, restarts=0, task=None):
            environ = {"SLURM_JOB_ID": "9", "SLURM_RESTART_COUNT": str(restarts)}
            if task is not None:
                environ |= {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": str(task)}
            with (cluster / "printed").open("w") as printed:
                return subprocess.Popen(
                    ["bash", file],
                    env={**os.environ, **environ},
                    stdout=printed,
                    stderr=printed,
                    start_new_session=True,
                )

        return start

    return submit


def wait_for(job, there):
    while not there():
        assert job.poll() is None, Path("printed").read_text()
        time.sleep(0.01)


def requeued():
    return Path("requeued").read_text().splitlines() if Path("requeued").exists() else []


@pytest.mark.slow
def test_a_requeued_job_equals_an_uninterrupted_run(slurm):
    start = slurm(*TRAIN, "--run-dir", "run", "--grace", 20)
    job = start()
    wait_for(job, lambda: list(Path("run/checkpoints").glob("step_*")))
    job.send_signal(signal.SIGUSR1)  # as before the time is up
    assert job.wait() == 143
    assert "SIGTERM: finishing the batch, within 20 seconds" in Path("printed").read_text()
    assert requeued() == ["requeue 9"]
    assert RunDir("run").read()["frames"] < 6000
    assert start(restarts=1).wait() == 0, Path("printed").read_text()
    assert "resumed from" in Path("printed").read_text()
    assert requeued() == ["requeue 9"]  # it is done
    main([*TRAIN, "--run-dir", "whole"])
    assert same_runs(Path("run"), Path("whole"))


@pytest.mark.parametrize(
    ("signals", "code", "again"),
    [
        ([signal.SIGUSR1], 143, ["requeue 7_1"]),  # the time is nearly up
        ([signal.SIGUSR1, signal.SIGTERM, signal.SIGUSR1], 143, ["requeue 7_1"]),  # and then it is
        ([signal.SIGTERM], 143, []),  # scancel
        ([signal.SIGUSR1], 0, []),  # that was its last batch
        ([signal.SIGUSR1], 1, []),  # it has failed
        ([], 3, []),
    ],
)
def test_an_unfinished_task_gets_one_signal_and_is_requeued(slurm, signals, code, again):
    start = slurm("train", "program.py", "--seeds", "3-6", "--run-dir", "many", "--jobs", 2)
    if code != 143:
        Path("ends").write_text(str(code))
    job = start(task=1)
    wait_for(job, Path("started").exists)
    if not signals:
        Path("over").touch()
    for number in signals:
        if number == signal.SIGTERM:
            os.killpg(job.pid, number)  # Slurm may send it to more than the script
        else:
            job.send_signal(number)
        time.sleep(0.05)
    assert job.wait() == code
    assert requeued() == again
    assert Path("told").read_text() == str(int(bool(signals)))
    assert Path("words").read_text() == f"--run-dir {Path('many').absolute()} --seeds 5-6"


@pytest.mark.parametrize(
    ("made", "again"),
    [
        ("seed3/checkpoints/step_000000000064", []),  # another task's
        ("seed6/checkpoints/step_000000000032-2", []),  # not a frame more
        ("seed6/checkpoints/step_000000000064", ["requeue 7_1"]),
    ],
)
def test_a_task_without_a_new_checkpoint_of_its_own_is_not_requeued(slurm, made, again):
    start = slurm("train", "program.py", "--seeds", "3-6", "--run-dir", "many", "--jobs", 2)
    Path("many/seed6/checkpoints/step_000000000032").mkdir(parents=True)
    Path("idle").touch()
    job = start(task=1)
    wait_for(job, Path("started").exists)
    Path("many", made).mkdir(parents=True)
    job.send_signal(signal.SIGUSR1)
    assert job.wait() == (143 if again else 1)
    assert requeued() == again
    if again:
        return
    said = Path("printed").read_text()
    assert "error: the time of this job was over before a new checkpoint was made" in said
    assert "to end 60 s before that" in said


def test_a_requeued_job_resumes_a_run_that_was_begun(slurm):
    place = Path("one").absolute()
    start = slurm("train", "program.py", "--fork=other@best", "--run-dir=one")
    Path("ends").write_text("0")
    Path("over").touch()
    for restarts, words in ((0, "--fork other@best"), (1, "--fork other@best")):
        assert start(restarts=restarts).wait() == 0  # queued again before it had begun
        assert Path("words").read_text() == f"--run-dir {place} {words}"
    RunDir.create(place)
    assert start().wait() == 0
    assert Path("words").read_text() == f"--run-dir {place} --fork other@best"
    assert start(restarts=1).wait() == 0
    assert Path("words").read_text() == f"--run-dir {place} --resume latest"


def test_a_dry_run_only_prints_the_script(call, cluster, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # nor is there need of a cluster
    before = sorted(cluster.iterdir())
    done = call(
        *TRAIN, "--seeds", 10, "--grace=120", "--launcher=slurm", "--dry-run", "--jobs", 4,
        "--slurm-partition", "gpu", "--slurm-gpus=1", "--slurm-exclusive", "--slurm-comment", "a b",
    )  # fmt: skip
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0] == "#!/bin/bash"
    for line in (
        "#SBATCH --job-name=a2c", "#SBATCH --array=0-3", "#SBATCH --signal=B:USR1@150",
        "#SBATCH --requeue", "#SBATCH --partition=gpu", "#SBATCH --gpus=1", "#SBATCH --exclusive",
        "#SBATCH --comment='a b'", f"#SBATCH --chdir={cluster}", "tasks=(0-1 2-4 5-6 7-9)",
    ):  # fmt: skip
        assert line in lines
    assert "-m hooktrainer train a2c --env=CartPole-v1" in done.out
    assert "--launcher" not in done.out
    assert sorted(cluster.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--launcher", "pbs"], "--launcher pbs: the only launcher is slurm"),
        (
            ["--launcher", "slurm", "--jobs", "2"],
            "--jobs 2 divide the seeds of a run: give --seeds",
        ),
        (["--launcher", "slurm", "--jobs"], "--jobs: '' is not a number"),
        *((["--launcher", "slurm", f"--slurm-{name}"], f"--slurm-{name}: the script gives that")
          for name in ("array", "no-requeue")),
        (["--launcher", "slurm", "--seeds=2", "--fork", "x"], "--fork with --seeds 2"),
        *((["--launcher", "slurm", *words], "cannot stand in a script") for words in (
            ["--run-dir", "y\ntouch X\n#"], ["--slurm-comment", "y\ntouch X"],
            ["--env", "y\ntouch X"], ["--device", "\x1b[2J"], ["--slurm-x\ntouch X", "y"],
        )),
        *((["--launcher", "slurm", "--grace", word], "--grace") for word in ("inf", "nan")),
        (["--launcher", "slurm", "--slurm-partition=nowhere"], "sbatch: error: no such partition"),
        (["--launcher", "slurm", "--run-dir", "taken"], "taken already holds a run"),
    ],
)  # fmt: skip
def test_mistakes_are_refused_before_submission(call, cluster, words, message):
    RunDir.create("taken")
    done = call(*TRAIN, *words)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not (cluster / "submitted").exists()


def test_a_configuration_file_is_submitted(cluster, capsys):
    file = "name: ppo\nenv: CartPole-v1\ntotal_frames: 500\nseeds: 0-3\ngrace: 70\n"
    (cluster / "config.yaml").write_text(file)
    for words in (["train", "--config", "config.yaml"], ["train", "ppo", "--config=config.yaml"]):
        code = main([*words, "--launcher", "slurm", "--jobs", "2", "--dry-run"])
        script = capsys.readouterr().out
        assert code == 0
        assert "hooktrainer train ppo --config" in script
        assert "tasks=(0-1 2-3)" in script
        assert "--signal=B:USR1@100" in script
    (cluster / "config.yaml").write_text(file.replace("0-3", "own\nseed: 7"))  # one of several
    assert main(["train", "--config", "config.yaml", "--launcher", "slurm", "--dry-run"]) == 0
    assert "tasks=(7-7)" in capsys.readouterr().out  # its directory is seed7, and is resumed


def test_jobs_of_a_sweep_run_the_same_command(call, cluster):
    done = call("sweep", "--slurm-exclusive", "--dry-run", "ppo", "--env", "CartPole-v1",
                "--launcher", "slurm",
                "--jobs", 3, "--run-dir", "out")  # fmt: skip
    assert "#SBATCH --array=0-2" in done.out
    assert "#SBATCH --exclusive\n" in done.out
    assert f"#SBATCH --output={cluster}/out/slurm/%A_%a.out" in done.out
    assert "-m hooktrainer sweep ppo --env CartPole-v1 --run-dir out &" in done.out
