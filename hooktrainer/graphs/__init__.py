"""Optimizer steps as compiled graphs; `hooktrainer.CompiledStep` puts them into a trainer."""

from __future__ import annotations

from .compiling import CannotCompileError, Graph, GraphOr
from .functional_loss import FunctionalLoss
from .step_graph import GradientGraph, StepGraph, StepRules

__all__ = [
    "CannotCompileError",
    "FunctionalLoss",
    "GradientGraph",
    "Graph",
    "GraphOr",
    "StepGraph",
    "StepRules",
]
