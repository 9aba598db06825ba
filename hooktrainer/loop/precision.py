"""`Precision`: the floating-point type in which losses are computed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from tensordict import is_tensor_collection

from ..base.checks import check_choice

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Precision:
    """Computes losses in half precision by ``torch.autocast``.

    Parameters, gradients, optimizers and the returned losses stay in float32.
    """

    def __init__(self, name: str | None, loss_module: Any) -> None:
        check_choice("precision", name, (*_TYPES, None))
        self.name = name
        self.scales = name == "fp16"
        self._module = loss_module

    @property
    def device_type(self) -> str:
        """The type of the loss's device."""
        tensors = self._module.parameters() if isinstance(self._module, torch.nn.Module) else ()
        return next((tensor.device.type for tensor in tensors), "cpu")

    @property
    def arguments(self) -> tuple[str, torch.dtype] | None:
        """The arguments of ``torch.autocast``; ``None`` if it is not used."""
        return None if self.name is None else (self.device_type, _TYPES[self.name])

    def no_autocast(self) -> AbstractContextManager[Any]:
        """Return a context that disables autocast inside a loss."""
        if self.name is None:
            return nullcontext()
        return torch.autocast(self.device_type, enabled=False)

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``call`` under autocast, with half-precision results converted to float32."""
        arguments = self.arguments
        if arguments is None:
            return call

        def in_precision(*args: Any) -> Any:
            with torch.autocast(*arguments):
                out = call(*args)
            return out.apply(_widened) if is_tensor_collection(out) else out

        return in_precision


def _widened(value: torch.Tensor) -> torch.Tensor:
    """Convert half precision to float32."""
    return value.float() if value.dtype in (torch.bfloat16, torch.float16) else value
