"""Two processes that train together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from outcomes import committed, is_gone, rows, wait_for
from rank_processes import RankProcesses, free_port
from tensordict import TensorDict
from toy import GivenData, ends, save_parameters, train_and_tell

from hooktrainer import Every, KLAdaptiveLR, LRSchedulerHook, OptimizerHook, Trainer
from hooktrainer.networks import CategoricalPolicy, ValueNetwork, mlp
from hooktrainer.objectives import ClipPPOLoss
from hooktrainer.optim import FlatAdam
from hooktrainer.run import DataParallel, Ranks, RanksError

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="torch was built without torch.distributed"
)


# -- the same as one -----------------------------------------------------------------------------


class Regression(torch.nn.Module):
    """Two losses of two networks, and a buffer that only rank 0 has right."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(4, 3), torch.nn.Linear(4, 1)

    def forward(self, batch):
        x = batch["observation"]
        losses = {
            "loss_one": (self.one(x).sum(-1) - x.sum(-1)).square().mean(),
            "loss_two": (self.two(x)[..., 0] - x.prod(-1)).square().mean(),
        }
        return TensorDict(losses, [])


def ppo_data() -> TensorDict:
    generator = torch.Generator().manual_seed(1)
    shape = (4, 8)
    data = {
        "observation": torch.randn(*shape, 4, generator=generator),
        "action": torch.randint(2, shape, generator=generator),
        "action_log_prob": torch.full(shape, -0.7),
        "advantage": torch.randn(*shape, 1, generator=generator),
        "value_target": torch.randn(*shape, 1, generator=generator),
    }
    return TensorDict(data, shape)


def learn(folder: Path) -> None:
    """Train on given data: PPO, two losses with an optimizer each, and hooks that are ops only."""
    torch.set_default_dtype(torch.float64)  # sums of another order differ by next to nothing
    ranks = Ranks.join(timeout=30)
    torch.manual_seed(ranks.rank)  # so that only the broadcast makes parameters equal
    ppo = ClipPPOLoss(
        CategoricalPolicy(mlp(4, 2)), ValueNetwork(mlp(4, 1)), normalize_advantage=False, kl=True
    )
    two = Regression()
    for name, loss in (("ppo", ppo), ("two", two), ("op", Regression())):
        options = {"optimizer": FlatAdam(loss.parameters(), lr=1e-2)} if name == "ppo" else {}
        trainer = Trainer(
            collector=GivenData(ppo_data()),
            total_frames=10 * 32,
            optim_steps_per_batch=2,
            loss_module=loss,
            progress_bar=False,
            clip_norm=0.3,
            **options,
        )
        if name == "two":
            for part in ("one", "two"):
                parameters = getattr(two, part).parameters()
                OptimizerHook(torch.optim.Adam(parameters, lr=1e-2), [f"loss_{part}"]).register(
                    trainer, f"optimizer_{part}"
                )
        elif name == "op":
            optimizer = torch.optim.LBFGS(loss.parameters(), line_search_fn="strong_wolfe")
            trainer.register_op("optimizer", OptimizerHook(optimizer))
            plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
            every = Every(batches=2)
            LRSchedulerHook(plateau, monitor="loss/two", every=every).register(trainer)
        else:
            KLAdaptiveLR(trainer.optimizer, desired_kl=0.03, high=0.02).register(trainer)
        if ranks.world_size > 1:
            hook = DataParallel(ranks)
            hook.close = lambda: None  # the second trainer needs the ranks, too
            hook.register(trainer)
        trainer.train()
        assert trainer.collected_frames == 320
        assert trainer.optim_count == 20
        save_parameters(loss, folder / f"{name}.pt")
    ranks.close()


@pytest.mark.slow
def test_the_same_batch_on_one_and_two_ranks_gives_the_same_parameters(tmp_path):
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        RankProcesses(number, learn, [tmp_path / str(number)], tmp_path / f"log{number}").check()
    for name in ("ppo", "two", "op"):
        one, two = (torch.load(tmp_path / n / f"{name}.pt") for n in ("1", "2"))
        assert len(one) == len(two) > 0
        for a, b in zip(one, two, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


# -- a run ---------------------------------------------------------------------------------------


def run(path: Path, number: int, log: Path, **options) -> RankProcesses:
    return RankProcesses(number, train_and_tell, [path, options], log)


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("straight")
    run(folder / "run", 2, folder / "log").check()
    return folder


def test_ranks_agree_and_rank_zero_speaks(straight):
    path = straight / "run"
    first, second = ends(path)
    assert first["frames"] == second["frames"] == 512
    assert first["parameters"] == second["parameters"]
    assert first["collector"] != second["collector"]
    assert first["rng"] != second["rng"]
    assert committed(path) == [128, 256, 384, 512]
    printed, other = ((straight / "log" / f"{rank}.txt").read_text() for rank in (0, 1))
    assert "Where the time went" in printed
    assert other == ""
    values = {line.split(",", 2)[1]: float(line.split(",")[2]) for line in rows(path)[1:]}
    assert values["toy/rank"] == 0.5  # the mean over ranks
    assert values["toy/rows"] == 2  # environments on each
    assert "eval/return" in values


@pytest.mark.slow
def test_a_killed_rank_ends_the_others_and_the_run_goes_on_exactly(straight, tmp_path):
    path = tmp_path / "run"
    ranks = run(path, 2, tmp_path / "log", trouble=("SIGKILL", 1, 6))
    codes = ranks.wait(180)  # a rank that has not noticed has no code: it waits for ten minutes
    assert codes == [1, -9], ranks.output(0)
    assert "another rank has ended" in ranks.output(0)
    assert (path / "exception.pt").exists()
    assert 0 < committed(path)[-1] < 512
    resumed = run(path, 2, tmp_path / "again", resume="latest")
    resumed.check()
    assert "resumed from" in resumed.output(0)
    assert ends(path) == ends(straight / "run")
    assert rows(path) == rows(straight / "run")


@pytest.mark.slow
def test_another_number_of_ranks_goes_on(straight, tmp_path):
    import shutil

    path = tmp_path / "run"
    shutil.copytree(straight / "run", path)
    alone = run(path, 1, tmp_path / "one", resume="latest", total_frames=640)
    alone.check()
    assert "divided again" in alone.output(0)
    assert ends(path, 1)[0]["frames"] == 640
    assert committed(path)[-1] == 640
    back = run(path, 2, tmp_path / "two", resume="latest", total_frames=768)
    back.check()
    assert "divided again" in back.output(0)
    first, second = ends(path)
    assert first["parameters"] == second["parameters"]
    assert first["rng"] != second["rng"]
    assert [end["frames"] for end in (first, second)] == [768, 768]


def test_one_signal_to_one_rank_ends_all_after_the_same_batch(tmp_path):
    path = tmp_path / "run"
    ranks = run(path, 2, tmp_path / "log", trouble=("SIGTERM", 1, 3))
    assert ranks.wait() == [143, 143]
    assert committed(path) == [128, 192]
    assert json.loads((path / "run.json").read_text())["status"] == "interrupted"


def test_an_error_on_one_rank_ends_the_other_with_an_error(tmp_path):
    ranks = run(tmp_path / "run", 2, tmp_path / "log", trouble=("raise", 1, 3))
    assert ranks.wait() == [1, 1]
    assert "trouble on purpose" in ranks.output(1)
    assert "See its own message" in ranks.output(0)
    assert (tmp_path / "run/ranks/1/exception.pt").exists()


@pytest.mark.slow
def test_networks_that_are_shared_out_train_as_whole_ones_do(straight, tmp_path):
    path = tmp_path / "run"
    ranks = run(path, 2, tmp_path / "log", sharded=True, trouble=("SIGKILL", 1, 6))
    assert ranks.wait() == [1, -9], ranks.output(0)
    resumed = run(path, 2, tmp_path / "again", sharded=True, resume="latest")
    resumed.check()
    assert [e["frames"] for e in ends(path)] == [512, 512]
    never = tmp_path / "never"
    run(never, 2, tmp_path / "straight", sharded=True).check()
    assert ends(path) == ends(never)
    assert rows(path) == rows(never)
    values = {}
    for folder in (path, straight / "run"):
        lines = [line.split(",") for line in rows(folder)[1:]]
        values[folder] = {f"{step} {name}": float(value) for step, name, value in lines}
    first = [key for key in values[path] if key.startswith("64 loss/")]
    assert first
    for key in first:  # the first batch; later ones follow from other roundings
        assert values[path][key] == pytest.approx(values[straight / "run"][key], rel=1e-3), key
    alone = run(path, 1, tmp_path / "one", sharded=True, resume="latest", total_frames=576)
    alone.check()


def _lose_step() -> None:
    ranks = Ranks.join(timeout=20)
    try:
        ranks.all_gather("a checkpoint" if ranks.rank else "the end of a batch", None)
    except RanksError as error:
        print(error)
        ranks.close()


def test_ranks_that_lose_step_notice(tmp_path):
    ranks = RankProcesses(2, _lose_step, [], tmp_path)
    ranks.check()
    for rank in (0, 1):
        assert "rank 0 is at the end of a batch; rank 1 is at a checkpoint" in ranks.output(rank)


def _fall_silent() -> None:
    ranks = Ranks.join(timeout=2)
    if ranks.rank:
        time.sleep(6)
        os._exit(0)
    ranks.all_gather("the end of a batch", None)


@pytest.mark.slow
def test_a_silent_rank_is_given_up(tmp_path):
    ranks = RankProcesses(2, _fall_silent, [], tmp_path)
    assert ranks.wait() == [1, 0]
    assert "has not answered for 2 s" in ranks.output(0)


# -- torchrun itself -----------------------------------------------------------------------------

_SCRIPT = """
import os, sys, pathlib
sys.path.insert(0, {here!r})
pathlib.Path({folder!r}, "pid" + os.environ["RANK"]).write_text(str(os.getpid()))
from toy import train
train(pathlib.Path({folder!r}, "run"), total_frames=10**9)
"""


@pytest.mark.slow
def test_ranks_end_with_a_killed_torchrun(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT.format(here=str(Path(__file__).parent), folder=str(tmp_path)))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--master-port", str(free_port()), str(script)]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as torchrun:
        wait_for(lambda: committed(tmp_path / "run"))
        torchrun.kill()
    pids = [int((tmp_path / f"pid{rank}").read_text()) for rank in (0, 1)]
    wait_for(lambda: all(map(is_gone, pids)))
    assert json.loads((tmp_path / "run/run.json").read_text())["status"] == "interrupted"
