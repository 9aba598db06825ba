"""Trains a `Trainer` of transformers, or one of TRL's that derives from it, in a `Session`.

`train(trainer, directory)` replaces ``trainer.train()`` with ``save_strategy="no"``; a batch is one
optimizer step. After a kill it continues bit for bit from its last checkpoint: on one device, with
a map-style data set and no worker processes. Not restored: other callbacks, GRPOTrainer's adaptive
entropy, and a model not named as in ``train(trainer, directory, ref=trainer.ref_model)``.
"""

import json
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from tensordict import TensorDict
from transformers import TrainerCallback
from transformers.trainer import TRAINER_STATE_NAME

from hooktrainer import Session

KEPT = "_tr_loss _total_loss_scalar _globalstep_last_logged _initial_global_step current_flos"
KEPT += " _total_train_tokens _step _buffered_inputs"  # TRL's, as well as `_metrics`


class HostState:
    """What the loop of transformers knows; it reads it from a file when it begins."""

    def __init__(self, trainer, folder):
        self.trainer, self.folder, self.kept = trainer, folder, None

    def state_dict(self):
        own, state = vars(self.trainer), asdict(self.trainer.state)
        kept = {name: own[name] for name in KEPT.split() if name in own}
        metrics = {mode: dict(lists) for mode, lists in own.get("_metrics", {}).items()}
        state["log_history"] = [e for e in state["log_history"] if "train_runtime" not in e]
        for values in (*metrics.values(), *state["log_history"]):
            values.pop("step_time", None)  # two runs differ in it
        return {"state": json.dumps(state), "kept": kept, "metrics": metrics}

    def load_state_dict(self, saved):
        self.folder.mkdir(exist_ok=True)
        (self.folder / TRAINER_STATE_NAME).write_text(saved["state"])
        self.kept = saved["kept"]
        for mode, lists in saved["metrics"].items():
            self.trainer._metrics[mode].update(lists)


class SessionCallback(TrainerCallback):
    def __init__(self, session, host, stack):
        self.session, self.host, self.stack = session, host, stack
        self.is_begun = self.is_made = False

    def on_step_begin(self, args, state, control, **_):
        if not self.is_begun:  # not before: the loop draws random numbers for its data
            self.is_begun = True
            vars(self.host.trainer).update(self.host.kept or {})
            self.stack.enter_context(self.session)
        self.end_batch(control)
        if self.session.going_on:
            self.session.step("pre_optim_steps")

    def on_optimizer_step(self, args, state, control, **_):
        if self.session.going_on:
            self.session.step("post_optim")

    def on_step_end(self, args, state, control, **_):
        self.is_made = self.session.progress.frames < state.global_step
        control.should_training_stop |= self.session.stop_reason is not None

    def on_log(self, args, state, control, logs=None, **_):
        for name, value in (logs or {}).items():
            if self.is_begun and isinstance(value, (int, float)):
                group = "time" if name.endswith(("time", "per_second")) else "train"
                self.session.log({f"{group}/{name}": value})

    def on_train_end(self, args, state, control, **_):
        if not self.is_begun:  # the run had ended
            self.stack.enter_context(self.session)
        self.end_batch(control)

    def end_batch(self, control):  # later, since transformers logs it after `on_step_end`
        if self.is_made and not self.session.end_batch(frames=1, batch=TensorDict({}, [])):
            control.should_training_stop = True
        self.is_made = False


def train(trainer, directory, **options):
    """Train; ``options`` are those of `Session`. Returns what ``trainer.train()`` does."""
    *_, steps = trainer.set_initial_training_values(trainer.args, trainer.get_train_dataloader())
    trainer.create_optimizer_and_scheduler(steps)
    trainer._created_lr_scheduler = False  # it would make another one
    given = {"model": trainer.model, "optimizer": trainer.optimizer}
    given |= {"scheduler": trainer.lr_scheduler, "resume": "latest", "unit": "steps"}
    host = HostState(trainer, Path(directory) / "transformers")
    session = Session(directory, total_frames=steps, host=host, **given | options)
    if host.kept is not None:
        trainer._load_from_checkpoint = lambda *args, **kwargs: None  # the session has
    with ExitStack() as stack:
        trainer.add_callback(SessionCallback(session, host, stack))
        return trainer.train(resume_from_checkpoint=str(host.folder) if host.kept else None)
