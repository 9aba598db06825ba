"""Which modules compute each learner of a batch of learners as if it were the only one."""

from __future__ import annotations

from typing import Final

from torch import nn

# Whose kernels do, bit for bit.
_INDEPENDENT: Final = {
    *(nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.Identity, nn.Flatten),
    *(nn.Linear, nn.Embedding),
    *(nn.Tanh, nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Softplus),
}


def why_not_together(module: nn.Module) -> str | None:
    """Why a module cannot be computed for several learners at once; `None` if it can."""
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.device.type != "cpu":
            return f"the networks are on {tensor.device}, where nobody has compared the bits"
    for part in module.modules():
        if type(part).__module__.startswith("torch.nn.") and type(part) not in _INDEPENDENT:
            return f"a {type(part).__name__} has no kernel whose bits depend on one learner alone"
    return None
