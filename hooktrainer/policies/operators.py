"""The operators that a policy's program may call: those that networks need, and no other.

Each is one of ATen, PyTorch's basic operators, that calculates new tensors from its arguments,
checks them itself, and never reads beyond them. Left out are those that write to their arguments,
draw random numbers, return memory that nobody has written (``empty``), look at memory by other
sizes than its own (``as_strided``, ``_unsafe_*``, ``view.dtype``), make tensors that are not plain
(sparse, quantized, complex), give results whose size depends on values (``nonzero``), or touch
files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from ..errors import CheckpointError

_ELEMENTWISE: Final = """
    abs acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bitwise_and
    bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil celu clamp
    clamp_max clamp_min copysign cos cosh deg2rad div elu eq erf erfc erfinv exp exp2 expm1
    floor floor_divide fmax fmin fmod frac ge gelu glu gt hardshrink hardsigmoid hardswish
    hardtanh heaviside hypot isinf isnan le leaky_relu lerp lgamma log log10 log1p log2
    log_sigmoid_forward logaddexp logaddexp2 logical_and logical_not logical_or logical_xor
    logit lt masked_fill maximum minimum mish mul nan_to_num ne neg pow _prelu_kernel rad2deg
    reciprocal relu remainder round rsqrt rsub __lshift__ __rshift__ sgn sigmoid sign signbit
    silu sin sinc sinh softplus softshrink special_erfcx sqrt square sub tan tanh threshold
    trunc where xlogy
"""
_REDUCING: Final = """
    all amax amin aminmax any argmax argmin count_nonzero cummax cummin cumprod cumsum dist
    kthvalue linalg_vector_norm logcumsumexp logsumexp max mean median min mode nansum norm prod
    _safe_softmax _softmax _log_softmax sort std std_mean sum topk trace var var_mean
"""
_LAYERS: Final = """
    _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d addbmm
    addmm addmv addr avg_pool2d avg_pool3d baddbmm bmm _cdist_forward constant_pad_nd
    convolution dot embedding im2col linalg_cross max_pool2d_with_indices
    max_pool3d_with_indices mm mv native_layer_norm pixel_shuffle pixel_unshuffle
    reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d
    replication_pad3d upsample_bilinear2d upsample_linear1d upsample_nearest1d
    upsample_nearest2d upsample_nearest3d upsample_trilinear3d vdot
"""
_INDEXING: Final = """
    alias bucketize cat clone copy detach diag_embed diagonal expand fill flip gather index
    index_add index_copy index_fill index_put index_select lift_fresh lift_fresh_copy permute
    repeat roll rot90 scatter scatter_add scatter_reduce select select_scatter slice
    slice_scatter split split_with_sizes squeeze stack t _to_copy transpose tril triu unbind
    unfold unsqueeze view
"""
_MAKING: Final = """
    arange eye full full_like linspace new_full new_ones new_zeros ones ones_like scalar_tensor
    zeros zeros_like
"""
ALLOWED: Final = frozenset(" ".join((_ELEMENTWISE, _REDUCING, _LAYERS, _INDEXING, _MAKING)).split())
"""The operators by name, in every overload that only calculates."""

INSTEAD: Final = {
    "aten.empty.memory_format": "aten.zeros.default",
    "aten.empty_like.default": "aten.zeros_like.default",
    "aten.new_empty.default": "aten.new_zeros.default",
    "aten._unsafe_view.default": "aten.view.default",
    "aten.unsafe_split.Tensor": "aten.split.Tensor",
    "aten._reshape_copy.default": "aten.view.default",
}
"""What is written down in place of operators that are not allowed and do the same."""

_REFUSED: Final = ("aten.view.dtype",)


def operator_named(target: str) -> Callable[..., Any]:
    """Return the operator of a name such as ``aten.add.Tensor``.

    Raises:
        CheckpointError: If there is none in this PyTorch, or no program may call it.
    """
    if not isinstance(target, str):
        raise ValueError(f"{target!r:.80} is no operator")
    space, _, rest = target.partition(".")
    name, _, overload = rest.partition(".")
    if space != "aten" or name not in ALLOWED:
        raise CheckpointError(f"the policy uses the operator {target!r:.80}, {_NOT_ALLOWED}.")
    packet = getattr(torch.ops.aten, name, None)
    if packet is None or overload not in packet.overloads():
        raise CheckpointError(
            f"the policy uses the operator {target!r:.80}, which PyTorch {torch.__version__} "
            "lacks: use the version that saved it."
        )
    found = getattr(packet, overload)
    if reason := objection(found):
        raise CheckpointError(f"the policy uses the operator {target!r:.80}, {reason}.")
    return found


_NOT_ALLOWED: Final = "which is not one of those that a saved policy may use"


def objection(op: Any) -> str | None:
    """Why an operator may not be part of a program; ``None`` if it may."""
    schema = getattr(op, "_schema", None)
    if getattr(op, "namespace", None) != "aten" or schema is None:
        return _NOT_ALLOWED
    if schema.is_mutable:
        return "which writes to its arguments"
    if torch.Tag.nondeterministic_seeded in op.tags:
        return "which draws random numbers"
    if schema.name.removeprefix("aten::") not in ALLOWED or str(op) in _REFUSED:
        return _NOT_ALLOWED
    return None
