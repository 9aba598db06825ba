"""`Ensemble`: several networks of one input as a batched module; batch renormalization."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from ..base.cores import compute_threads
from .layers import AgentLinear, mlp

Norm = Callable[[int, int], nn.Module]
"""Makes a layer from the number of networks and of features."""


class Ensemble(nn.Module):
    """Several multi-layer perceptrons of one input, with separate parameters.

    Args:
        networks: Number of networks.
        in_features: Size of the input's last dimension.
        out_features: Outputs of each network.
        num_cells: As for `mlp`.
        activation_class: As for `mlp`.
        linear: Makes a layer from the number of networks and the sizes of its input and output; it
            maps ``[networks, batch, in_features]`` to ``[networks, batch, out_features]``.
        norm: Makes the layer after each hidden linear layer.
        make: Makes all layers, in place of ``linear`` and ``norm``, with the arguments of
            `unit_mlp`.
    """

    def __init__(
        self,
        networks: int,
        in_features: int,
        out_features: int,
        num_cells: Sequence[int] = (64, 64),
        activation_class: Callable[[], nn.Module] = nn.Tanh,
        *,
        linear: Callable[[int, int, int], nn.Module] = AgentLinear,
        norm: Norm | None = None,
        make: Callable[..., nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.networks = networks
        sizes = (in_features, out_features, num_cells, activation_class)
        if make is not None:
            self.layers = make(*sizes, networks=(networks,))
        else:
            own_norm = None if norm is None else partial(norm, networks)
            self.layers = mlp(*sizes, partial(linear, networks), own_norm)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[*batch, in_features]`` to ``[*batch, networks * out_features]``."""
        rows = x.reshape(-1, x.shape[-1])
        out = self.layers(rows.expand(self.networks, *rows.shape))
        return out.transpose(0, 1).reshape(*x.shape[:-1], -1)


class EnsembleLayerNorm(nn.Module):
    """Layer normalization of ``[networks, batch, features]``, with separate parameters."""

    def __init__(self, networks: int, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(networks, 1, features))
        self.bias = nn.Parameter(torch.zeros(networks, 1, features))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the last dimension."""
        return torch.addcmul(self.bias, layer_norm(x, x.shape[-1:]), self.weight)


def dropout_and_layer_norm(dropout: float) -> Norm:
    """The layers after a hidden linear layer of DroQ (Hiraoka et al., 2022, arXiv:2110.02034)."""

    def make(networks: int, features: int) -> nn.Module:
        return nn.Sequential(nn.Dropout(dropout), EnsembleLayerNorm(networks, features))

    return make


def renormalized(networks: int, in_features: int, out_features: int) -> nn.Module:
    """A linear layer of `Ensemble` after `BatchRenorm` (Bhatt et al., 2024, arXiv:1902.05605)."""
    norm = BatchRenorm(in_features, (networks,))
    return nn.Sequential(norm, AgentLinear(networks, in_features, out_features))


def renormalized_linear(in_features: int, out_features: int) -> nn.Module:
    """The same for a single network, for `mlp`."""
    return nn.Sequential(BatchRenorm(in_features), nn.Linear(in_features, out_features))


class BatchRenorm(nn.Module):
    """Batch renormalization (Ioffe, 2017, arXiv:1702.03275), of one or of several networks at once.

    It normalizes by running statistics, except within `batch_statistics`, which a loss enters.
    There it normalizes by those of the batch, corrected towards the running ones after a warm-up,
    and updates the running ones. Training and evaluation mode make no difference, so that policies
    act by running statistics wherever they act.

    Args:
        features: Size of the last dimension.
        networks: Leading dimensions of the input, whose statistics and parameters are separate.
        momentum: Weight of a batch in the running statistics.
        warm_up: Batches that are normalized by their own statistics alone; ``None`` for all, which
            is batch normalization (Ioffe and Szegedy, 2015, arXiv:1502.03167).
        eps: Added to the variance.

    Attributes:
        mean: ``[*networks, 1, features]``.
        var: Variance, likewise: unbiased, or biased if ``warm_up`` is ``None``, as in the papers'
            code.
        batches: Number of batches in the statistics, int64.
    """

    largest_scale = 3.0
    largest_shift = 5.0
    mean: Tensor
    var: Tensor
    batches: Tensor

    def __init__(
        self,
        features: int,
        networks: tuple[int, ...] = (),
        *,
        momentum: float = 0.01,
        warm_up: int | None = 100_000,
        eps: float = 1e-3,
    ) -> None:
        super().__init__()
        shape = (*networks, 1, features)
        self.learns = False
        self.momentum, self.warm_up, self.eps = momentum, warm_up, eps
        self.weight = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape))
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("var", torch.ones(shape))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``, ``[*networks, batch, features]``; one: ``[*batch, features]``."""
        if self.learns:
            return self._by_batch(x).reshape(x.shape)
        out = (x - self.mean) * (self.var + self.eps).rsqrt()
        return torch.addcmul(self.bias, out, self.weight).reshape(x.shape)

    def _by_batch(self, x: Tensor) -> Tensor:
        # One call of PyTorch's kernel, with the features of all networks in a row: forward and
        # backward take a quarter of the time of `torch.var_mean` and arithmetic, or less.
        rows = x.reshape(*self.mean.shape[:-2], -1, x.shape[-1]).movedim(-2, 0)
        weight, bias, biased = self.weight, self.bias, 1.0
        within: tuple[Tensor | None, ...] = (weight.flatten(), bias.flatten())
        if self.warm_up is not None:  # scaled after the kernel, whose variance is the biased one
            within, biased = (None, None), 1.0 - 1.0 / len(rows)
        out, mean, inverse = torch.native_batch_norm(
            rows.flatten(1), within[0], within[1], None, None, True, 0.0, self.eps * biased
        )
        out = out.view(rows.shape).movedim(0, -2)
        with torch.no_grad():
            mean = mean.to(self.mean).view_as(self.mean)
            std = 1.0 / (inverse.to(self.var).view_as(self.var) * biased**0.5)
            if self.warm_up is not None:
                running = (self.var + self.eps).sqrt()
                is_warm = self.batches > self.warm_up
                scale = (std / running).clamp(1 / self.largest_scale, self.largest_scale)
                shift = (mean - self.mean) / running
                shift = shift.clamp(-self.largest_shift, self.largest_shift)
                scale, shift = torch.where(is_warm, scale, 1.0), torch.where(is_warm, shift, 0.0)
            self.mean.lerp_(mean, self.momentum)
            self.var.lerp_(std.square() - self.eps, self.momentum)
            self.batches.add_(1)
        if self.warm_up is None:
            return out
        return torch.addcmul(bias + weight * shift, out, weight * (scale * biased**0.5))

    def reset_parameters(self) -> None:
        """Restore the initial parameters and statistics."""
        for ones, zeros in ((self.weight.data, self.bias.data), (self.var, self.mean)):
            ones.fill_(1.0)
            zeros.zero_()
        self.batches.zero_()


@contextmanager
def batch_statistics(network: nn.Module, learns: bool = True) -> Iterator[None]:
    """In the block, the `BatchRenorm` layers of ``network`` use and update batch statistics.

    Args:
        network: Holds the layers.
        learns: ``False`` to use running statistics, as outside the block.
    """
    norms = [m for m in network.modules() if isinstance(m, BatchRenorm)] if learns else []
    for norm in norms:
        norm.learns = True
    try:
        yield
    finally:
        for norm in norms:
            norm.learns = False


# -- Layers of XQC (Palenicek et al., 2025, arXiv:2509.25174).


class UnitLinear(nn.Module):
    """A linear layer, of one or of several networks at once, whose rows have norm 1 initially.

    `project_weights` scales them to norm 1 again.

    Args:
        in_features: Size of the input's last dimension.
        out_features: Size of the output's last dimension.
        networks: Leading dimensions of the input, whose parameters are separate.
        bias: Whether there is a bias, whose norm is not constrained.

    Attributes:
        weight: ``[*networks, out_features, in_features]``.
        bias: ``[*networks, 1, out_features]``; of one network ``[out_features]``.
    """

    def __init__(
        self, in_features: int, out_features: int, networks: tuple[int, ...] = (), bias: bool = True
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(*networks, out_features, in_features))
        shape = (*networks, 1, out_features) if networks else (out_features,)
        self.bias = nn.Parameter(torch.empty(shape)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw orthogonal weights, scale their rows, and set the bias to 0."""
        with compute_threads(1):  # whose result does not depend on how many cores there are
            for weight in self.weight.data.view(-1, *self.weight.shape[-2:]):
                nn.init.orthogonal_(weight)
        self.project()
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    @torch.no_grad()
    def project(self) -> None:
        """Scale the rows of the weight to norm 1."""
        self.weight.div_(self.weight.norm(dim=-1, keepdim=True))

    def forward(self, x: Tensor) -> Tensor:
        """``[*networks, batch, out_features]``; of one network ``[*batch, out_features]``."""
        out = x @ self.weight.transpose(-1, -2)
        return out if self.bias is None else out + self.bias


def project_weights(*modules: nn.Module) -> None:
    """Scale the rows of all `UnitLinear` layers to norm 1, as after every optimizer step of XQC."""
    for module in modules:
        for layer in module.modules():
            if isinstance(layer, UnitLinear):
                layer.project()


def unit_mlp(
    in_features: int,
    out_features: int,
    num_cells: Sequence[int] = (64, 64),
    activation_class: Callable[[], nn.Module] = nn.ReLU,
    *,
    networks: tuple[int, ...] = (),
) -> nn.Sequential:
    """A multi-layer perceptron of `UnitLinear` layers, with batch-normalized input and layers.

    Args:
        in_features: As for `mlp`.
        out_features: As for `mlp`.
        num_cells: As for `mlp`.
        activation_class: As for `mlp`.
        networks: As for `UnitLinear`.
    """
    norm = partial(BatchRenorm, networks=networks, warm_up=None)
    layers: list[nn.Module] = [norm(in_features)]
    for cells in num_cells:
        layers += [UnitLinear(in_features, cells, networks, False), norm(cells), activation_class()]
        in_features = cells
    return nn.Sequential(*layers, UnitLinear(in_features, out_features, networks))
