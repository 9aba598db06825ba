"""Optimizer steps as compiled graphs; `hooktrainer.CompiledStep` puts them into a trainer."""

from __future__ import annotations

from .functional_loss import FunctionalLoss
from .step_graph import GradientGraph, StepGraph

__all__ = ["FunctionalLoss", "GradientGraph", "StepGraph"]
