"""Reinforcement learning and fine-tuning of language models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.lazy import attach

if TYPE_CHECKING:
    from .collector import CompletionCollector as CompletionCollector
    from .demonstrations import Demonstrations as Demonstrations
    from .evaluate import EvaluateCompletions as EvaluateCompletions
    from .generation import Completion as Completion
    from .generation import Engine as Engine
    from .log_probs import RecomputeLogProbs as RecomputeLogProbs
    from .rewards import GroupAdvantage as GroupAdvantage
    from .rewards import Rewards as Rewards
    from .server import ServerEngine as ServerEngine
    from .tasks import CharTokenizer as CharTokenizer
    from .tasks import TextTask as TextTask
    from .tasks import text_task as text_task
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
