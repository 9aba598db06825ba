"""The base of SFT, DPO and GRPO: training a language model on a task of texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
import tyro
from torch import nn

from ..errors import ConfigError
from ..hooks import Schedule
from ..loop.cadence import Every
from ..networks import CausalTransformer, TransformersModel
from ..networks.language_model import LanguageModel
from ..optim import FlatAdam
from ..run.config import Between, Count, FreeOnResume, Number, Rate
from ..sequences import EvaluateCompletions, TextTask, text_task
from ..store import Checkpoint, find
from ..trainer import Trainer
from .algorithm import Algorithm
from .config import Word
from .task import AlgorithmTask

TotalSamples = FreeOnResume[Annotated[Count, tyro.conf.arg(aliases=["--total-samples"])]]
"""The field of a run's length, which counts samples here."""


class TextRun(AlgorithmTask):
    """The parts that all algorithms of language models share.

    Args:
        algorithm: The fields.
        keep: Whether the run has a directory, which is made if ``run_dir`` names none.

    Attributes:
        task: The task.
        model: The language model.
        tokenizer: That of the task, or else of the model.
        device: Where the learner computes.
    """

    def __init__(self, algorithm: TextAlgorithm, keep: bool) -> None:
        self._fields = algorithm
        self.task = text_task(algorithm.task)
        self._begin(algorithm, keep)
        self.model = self._made().to(self.device)
        tokenizer = self.task.tokenizer or getattr(self.model, "tokenizer", None)
        if tokenizer is None:
            raise self._no_tokenizer()
        self.tokenizer: Any = tokenizer
        if algorithm.init is not None:
            self._load(algorithm.init)

    def _load(self, init: str) -> None:
        """Load the first weights, unless a run that is resumed or forked has others."""
        try:
            if self._begins():
                load_model(self.model, init)
        except BaseException:
            self.release()
            raise

    def _no_tokenizer(self) -> ConfigError:
        return ConfigError(
            f"{self._fields.name()}: neither the task nor the model has a tokenizer: give the "
            "TextTask one."
        )

    def _made(self) -> LanguageModel:
        """The language model, with random weights or those of its name."""
        fields, model = self._fields, self._fields.model
        if fields.exact and fields.precision is not None:
            raise ConfigError(
                f"{fields.name()}: exact=True with precision={fields.precision!r}: completions are "
                "generated in float32, so no bits would be the same: leave one of the two out."
            )
        if model is None:
            if self.task.tokenizer is None:
                raise self._no_tokenizer()
            model = CausalTransformer(
                len(self.task.tokenizer),
                fields.context_length,
                width=fields.width,
                depth=fields.depth,
                heads=fields.heads,
                exact=fields.exact,
            )
        elif fields.exact:
            raise ConfigError(
                f"{fields.name()}: exact=True is for the transformer of hooktrainer: leave model= "
                "or exact= out."
            )
        elif not isinstance(model, LanguageModel):
            model = TransformersModel.from_pretrained(str(model))
        found: LanguageModel = model
        return found

    def trainer(self, collector: Any, loss_module: nn.Module, **kwargs: Any) -> Trainer:
        """The trainer, with its loggers and checkpoints, but without the algorithm's hooks."""
        fields, lr = self._fields, self._fields.lr
        if lr is None:
            is_small = isinstance(self.model, CausalTransformer)
            lr = fields.small_lr if is_small else fields.pretrained_lr
        optimizer = FlatAdam(
            [p for p in loss_module.parameters() if p.requires_grad],
            lr=lr,
            weight_decay=fields.weight_decay,
        )
        trainer = Trainer(
            collector=collector,
            total_frames=fields.total_frames,
            loss_module=loss_module,
            optimizer=optimizer,
            precision=fields.precision,
            clip_norm=fields.max_grad_norm,
            accumulate=fields.accumulate,
            **self._run.trainer_options,
            **kwargs,
        )
        if fields.anneal_lr:
            Schedule.linear(optimizer, "lr", lr, 0.0).register(trainer)
        return trainer

    def finish(self, trainer: Trainer) -> Trainer:
        """Add the evaluation and the hooks of the caller; then restore the run."""
        fields, task = self._fields, self.task
        score = task.rewards if task.score is None else task.score
        if fields.eval_episodes and score is not None and len(task.held_out):
            EvaluateCompletions(
                task.held_out,
                self.model,
                rewards=score,
                tokenizer=self.tokenizer,
                max_new_tokens=task.max_new_tokens,
                respond=task.respond,
                every=Every(frames=fields.eval_interval),
                episodes=fields.eval_episodes,
                stop_at=fields.stop_at,
            ).register(trainer)
        elif fields.stop_at is not None:
            raise ConfigError(
                f"stop_at={fields.stop_at} has no effect without evaluation, which needs "
                "eval_episodes above 0, and held_out rows and rewards of the task."
            )
        return self._attached(trainer, fields.hooks)


def load_model(model: LanguageModel, spec: str) -> None:
    """Load the weights of a language model from a checkpoint of SFT, DPO or GRPO.

    Args:
        model: The model.
        spec: The run, or a checkpoint of it, as for ``--fork``.

    Raises:
        CheckpointError: If there is no such checkpoint.
        ConfigError: If it has no weights of such a model.
    """
    state: Mapping[str, Any] = Checkpoint.open(find(spec)[0]).load()["components"]
    start = "model."
    saved = state.get("loss_module", {})
    weights = {name[len(start) :]: saved[name] for name in saved if name.startswith(start)}
    own = model.state_dict()
    differing = [
        name for name in own if name not in weights or weights[name].shape != own[name].shape
    ]
    if differing:
        raise ConfigError(
            f"init={spec}: {differing[0]!r} is not in that run, or of another shape: give width, "
            "depth, heads and context_length the values of that run."
        )
    model.load_state_dict({**weights, "version": torch.zeros((), dtype=torch.int64)})


@dataclass(frozen=True, kw_only=True)
class TextAlgorithm(Algorithm):
    """Fields of the algorithms that train language models."""

    task: Annotated[Any, Word("TASK")]
    """what to train on: addition; in Python also a TextTask"""
    model: Annotated[Any, Word("MODEL")] = None
    """name or directory of a model of transformers; in Python also a LanguageModel; None: a small
    transformer, of the size that the next fields give"""
    init: str | None = None
    """run or checkpoint whose weights to begin with; None: random ones"""
    width: Count = 96
    """units in each layer of the transformer"""
    depth: Count = 2
    """layers of the transformer"""
    heads: Count = 4
    """heads of attention in each layer"""
    context_length: Count = 32
    """tokens of the longest prompt and its completion"""
    exact: bool = False
    """whether log-probabilities are the same bits in training and generation; up to twice slower"""
    lr: Annotated[Rate | None, Between(1e-6, 1e-2, log=True)] = None
    """learning rate; None: 1e-3, of dpo 1e-4, and for a model of transformers 1e-6, of sft 2e-5"""
    accumulate: Count = 1
    """batches, with grpo mini-batches, per optimizer step"""
    anneal_lr: bool = False
    """whether the learning rate falls linearly to zero at total_frames"""
    weight_decay: Rate = 0.0
    """weight decay"""
    max_grad_norm: float | None = 1.0
    """the gradient is clipped to this norm; None for no clipping"""
    eval_episodes: Number = 200
    """held-out prompts in an evaluation, completed by the most probable tokens; 0 for none"""

    small_lr: ClassVar[float] = 1e-3
    """The learning rate of the small transformer, if none is given."""
    pretrained_lr: ClassVar[float] = 1e-6
    """That of other models."""
    task_type: ClassVar[Callable[..., Any]] = TextRun
    subject: ClassVar[str] = "task"

    @property
    def trained_on(self) -> str:
        """The name of the task."""
        return self.task.name if isinstance(self.task, TextTask) else str(self.task)

    def __post_init__(self) -> None:
        """Refuse snapshots, which are of policies that act in environments."""
        super().__post_init__()
        if self.snapshots:
            raise ConfigError(
                f"{self.name()}: snapshots={self.snapshots} saves policies of environments: leave "
                "it out; language models are in the checkpoints, of which keep_last keeps more."
            )

    def as_dict(self) -> dict[str, Any]:
        """The fields as plain values, without those that can be given in Python only."""
        given = self.model
        plain = given is None or isinstance(given, str)
        return super().as_dict() | {"model": given if plain else type(given).__name__}
