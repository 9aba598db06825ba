"""TorchRL's losses as parts of a trainer: they build their value estimator only when used."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from torch import nn

from ..loop.part import ModulePart

_PREFIX = "_value_estimator."


def has_value_estimator(module: Any) -> bool:
    """Whether ``module`` is a loss that builds its value estimator when it is asked for."""
    return isinstance(module, nn.Module) and hasattr(type(module), "value_estimator")


def build_value_estimator(loss: Any, saved: Mapping[str, Any]) -> None:
    """Build the value estimator of such a loss, if the state of one with it is to be loaded."""
    if _is_in(saved) and not _is_in(loss.state_dict()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is built with default hyper-parameters
            loss.value_estimator  # noqa: B018


def _is_in(state: Mapping[str, Any]) -> bool:
    return any(str(key).startswith(_PREFIX) for key in state)


class LossPart(ModulePart):
    """Such a loss; it builds what a state has before it is compared with it."""

    def differences(self, saved: Mapping[str, Any]) -> list[str]:
        """Name the parameters and buffers that differ."""
        build_value_estimator(self._module, saved)
        return super().differences(saved)
