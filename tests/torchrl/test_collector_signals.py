"""A signal to the whole process group ends TorchRL's collecting processes; the run is saved."""

from __future__ import annotations

import os
import signal

import pytest
from torchrl.collectors import Collector
from torchrl.envs import GymEnv

from hooktrainer import ConfigError, UpdateWeights
from hooktrainer.testing import FakeCollector, tiny_trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore:The collector, a "),
    pytest.mark.filterwarnings("ignore:SIGTERM ended the collector's processes"),
]


class Mortal(FakeCollector):
    """Its processes, if it had any, would die of a signal that its run receives."""

    procs = (1, 2)
    pipes = (1, 2)

    def __init__(self, trainer_of) -> None:
        super().__init__()
        self._trainer_of = trainer_of
        self.sent = 0

    @property
    def dead(self) -> bool:
        return self._trainer_of()[0].control.signal is not None

    def _batch(self):
        if self.dead:
            raise RuntimeError("At least one process failed")
        return super()._batch()

    def update_policy_weights_(self, *args, **kwargs):
        assert not self.dead, "this would wait for ever"
        self.sent += 1

    def state_dict(self):
        if self.dead:
            raise OSError("handle is closed")
        return super().state_dict()


def mortal(total_frames=50, **overrides):
    box = []
    trainer = tiny_trainer(collector=Mortal(lambda: box), total_frames=total_frames, **overrides)
    box.append(trainer)
    UpdateWeights(trainer.collector).register(trainer)
    return trainer


def end_by_signal(trainer):
    with pytest.raises(SystemExit) as caught:
        trainer.train()
    assert caught.value.code == 128 + signal.SIGTERM


@pytest.mark.parametrize("point", ["post_optim", "post_steps_log", "batch_process"])
def test_wherever_the_signal_comes_the_batch_is_finished_and_saved(point, tmp_path):
    trainer = mortal(save_trainer_file=tmp_path / "state.pt")

    def receive(*_):
        if trainer.collected_frames == 30:
            trainer.control.receive(signal.SIGTERM, 30)

    trainer.register_op(point, receive)
    end_by_signal(trainer)
    assert trainer.collector.closed == 1
    other = mortal()
    with pytest.warns(UserWarning, match="the loaded state has none of the collector"):
        other.load_from_file(tmp_path / "state.pt")
    assert (other.collected_frames, other.optim_count) == (30, 6)
    assert other.loss_module.parameter.equal(trainer.loss_module.parameter)
    assert other.collector.sent == 1
    other.train()
    assert other.collected_frames == 50


def test_without_a_signal_a_state_that_cannot_be_had_is_an_error():
    class Silent(Mortal):
        def state_dict(self):
            raise OSError("handle is closed")

    trainer = tiny_trainer(collector=Silent(lambda: [trainer]))
    with pytest.raises(OSError, match="handle is closed"):
        trainer.state_dict()


def test_what_to_do_for_the_state_of_a_closed_collector_is_said(tmp_path):
    collector = Collector(GymEnv("CartPole-v1"), None, frames_per_batch=10, total_frames=10)
    file = tmp_path / "state.pt"
    trainer = tiny_trainer(collector=collector, total_frames=10, save_trainer_file=file)
    trainer.train()
    with pytest.raises(ConfigError, match="save_trainer_file= or checkpoints= to the trainer"):
        trainer.state_dict()
    assert file.exists()


def test_the_handler_of_memory_mapped_storages_does_not_end_the_run(tmp_path):
    from torchrl.data.replay_buffers.storages import tensor

    def receive():
        if trainer.collected_frames == 20:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, tensor._signal_cleanup_handler)
    try:
        trainer = tiny_trainer(save_trainer_file=tmp_path / "state.pt")
        trainer.register_op("post_steps", receive)
        end_by_signal(trainer)
        assert signal.getsignal(signal.SIGTERM) is tensor._signal_cleanup_handler
    finally:
        signal.signal(signal.SIGTERM, before)
    assert trainer.collected_frames == 20
    assert (tmp_path / "state.pt").exists()
