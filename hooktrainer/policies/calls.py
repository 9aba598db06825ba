"""One operator call of a program, its arguments checked against the operator's schema.

Arguments of other types (a storage, a generator, another layout) cannot be given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final, cast

import torch

from ..errors import CheckpointError

MOST_ITEMS: Final = 4_096
"""Largest number of values in one list of arguments."""
DTYPES: Final = {
    name: getattr(torch, name)
    for name in (
        *("bool", "uint8", "int8", "int16", "int32", "int64"),
        *("float16", "bfloat16", "float32", "float64"),
    )
}
"""Types of programs, weights and observations."""
_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
_WORDS: Final[dict[str, dict[str, Any]]] = {
    "dtype": DTYPES,
    "layout": {"strided": torch.strided},
    "memory_format": {name: getattr(torch, name) for name in _FORMATS},
    "float": {name: float(name) for name in ("inf", "-inf", "nan")},
}
"""By word, the arguments that are objects of torch or numbers that JSON lacks."""
_MADE_HERE: Final = ("device", "pin_memory", "generator")


class Value(int):
    """An argument that is the value of this number."""


class Batch(int):
    """An argument that is this many times the batch size."""


class Call:
    """One call: its constant arguments, and the places of the others; see `Program`.

    PyTorch checks the types of arguments, first on the device ``meta``. `reads` has the numbers of
    the values that it uses, `result` that of its result.
    """

    def __init__(
        self,
        target: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        index: Mapping[str, int],
        random: bool = False,
    ) -> None:
        self.target = target
        self.result = -1
        self.reads: set[int] = set()
        self._function: Callable[..., Any] = _item
        self._index = index
        schema: Any = ()
        if target != "getitem":
            self._function = operator_named(target, random)
            schema = cast(Any, self._function)._schema.arguments
        self._places = [one.name for one in schema if not one.kwarg_only]
        self._defaults = {one.name: one.default_value for one in schema}
        kinds = {one.name: str(one.type) for one in schema}
        named = zip_longest(self._places[: len(args)], args)
        arguments = [self._parse(value, kinds.get(name, "")) for name, value in named]
        self._kwargs = {
            n: self._parse(v, kinds.get(n, "")) for n, v in kwargs.items() if n not in _MADE_HERE
        }
        if any(map(_varies, self._kwargs.values())):
            raise TypeError(f"a keyword argument of {target} is no constant")
        if "device" in self._defaults:
            self._kwargs["device"] = "cpu"
        self._args: list[Any] = [None if _varies(value) else value for value in arguments]
        self._filled = [(n, value) for n, value in enumerate(arguments) if _varies(value)]
        varying = [one for _, value in self._filled for one in _flat(value)]
        self.is_constant = bool(self.reads) and not any(isinstance(v, Batch) for v in varying)
        if target.split(".")[1:2] and target.split(".")[1] in RANDOM:
            self.is_constant = False

    def __call__(self, values: Sequence[Any], batch: int, device: str = "cpu") -> Any:
        """Call the operator on all values, by number; new tensors are made on the device."""
        args = self._args_of(values, batch)
        if device != "cpu":
            if self.target in _SHAPES:  # without an implementation for the device meta
                return torch.empty_like(args[0])
            if "device" in self._kwargs:
                return self._function(*args, **self._kwargs | {"device": device})
        return self._function(*args, **self._kwargs)

    def named(self, values: Sequence[Any], batch: int) -> dict[str, Any]:
        """Return all arguments by name, defaults included."""
        args = zip(self._places, self._args_of(values, batch), strict=False)
        return {**self._defaults, **dict(args), **self._kwargs}

    def _args_of(self, values: Sequence[Any], batch: int) -> list[Any]:
        args = self._args.copy()
        for place, value in self._filled:
            args[place] = _fill(value, values, batch)
        return args

    def _parse(self, value: Any, kind: str) -> Any:
        if not isinstance(value, list):
            if "List[" in kind and "Tensor" in kind:  # a tensor would be taken apart
                raise TypeError(f"{self.target} takes a list of tensors")
            return self._one(value, kind)
        if len(value) > MOST_ITEMS:
            raise ValueError(f"{self.target} does not take a list of {len(value)}")
        return [self._one(item, kind) for item in value]

    def _one(self, value: Any, kind: str) -> Any:
        match value:
            case str():
                found = Value(self._index[value.removeprefix("%")])
                self.reads.add(found)
                return found
            case {"batch": int(number), **rest} if not rest and number.bit_length() <= 32:
                return Batch(number)
            case {"text": str(text), **rest} if not rest and len(text) < 32:
                return text
            case dict() if len(value) == 1 and (word := next(iter(value))) in _WORDS:
                return _WORDS[word][value[word]]
            case None if "Optional[" in kind:
                return value
            case float() | bool():
                return value
            case int() if value.bit_length() < 64:
                return value
        raise TypeError(f"{self.target} does not take {value!r:.40}")


def _item(of: Any, number: int) -> Any:
    if not isinstance(of, (list, tuple)):
        raise TypeError("getitem is for results of several tensors")
    return of[number]


def _flat(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _varies(value: Any) -> bool:
    return any(isinstance(one, (Value, Batch)) for one in _flat(value))


def _fill(value: Any, values: Sequence[Any], batch: int) -> Any:
    if isinstance(value, list):
        return [_fill(item, values, batch) for item in value]
    if isinstance(value, Value):
        return values[value]
    return value * batch if isinstance(value, Batch) else value


# -- The operators that a policy's program may call: those that networks need, and no other.

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
"""Names of allowed operators, in every overload that has no side effects."""
_RANDOM: Final = """
    bernoulli cauchy exponential geometric log_normal multinomial normal normal_functional rand
    rand_like randint randint_like randn randn_like uniform _sample_dirichlet _standard_gamma
"""
RANDOM: Final = frozenset(_RANDOM.split())
"""Further operators of a program that samples."""
_SHAPES: Final = ("aten._sample_dirichlet.default",)
INSTEAD: Final = {
    "aten.empty.memory_format": "aten.zeros.default",
    "aten.empty_like.default": "aten.zeros_like.default",
    "aten.new_empty.default": "aten.new_zeros.default",
    "aten._unsafe_view.default": "aten.view.default",
    "aten.unsafe_split.Tensor": "aten.split.Tensor",
    "aten._reshape_copy.default": "aten.view.default",
}
"""Replacements of operators that are not allowed by equivalent ones."""
_REFUSED: Final = ("aten.view.dtype",)


def operator_named(target: str, random: bool = False) -> Callable[..., Any]:
    """Return the operator of a name such as ``aten.add.Tensor``; ``random`` ones only if asked."""
    if not isinstance(target, str):
        raise ValueError(f"{target!r:.80} is no operator")
    space, _, rest = target.partition(".")
    name, _, overload = rest.partition(".")
    if space != "aten" or name not in ALLOWED | RANDOM:
        raise CheckpointError(f"the policy uses the operator {target!r:.80}, {_NOT_ALLOWED}.")
    packet = getattr(torch.ops.aten, name, None)
    if packet is None or overload not in packet.overloads():
        raise CheckpointError(
            f"the policy uses the operator {target!r:.80}, which PyTorch {torch.__version__} "
            "lacks: use the version that saved it."
        )
    found = getattr(packet, overload)
    if reason := objection(found, random):
        raise CheckpointError(f"the policy uses the operator {target!r:.80}, {reason}.")
    return found


_NOT_ALLOWED: Final = "which is not one of those that a saved policy may use"


def objection(op: Any, random: bool = False) -> str | None:
    """Why an operator may not be part of a program; ``None`` if it may."""
    schema = getattr(op, "_schema", None)
    if getattr(op, "namespace", None) != "aten" or schema is None:
        return _NOT_ALLOWED
    name = schema.name.removeprefix("aten::")
    if schema.is_mutable:
        return "which writes to its arguments"
    if torch.Tag.nondeterministic_seeded in op.tags and not (random and name in RANDOM):
        return _NOT_ALLOWED if random else "which draws random numbers"
    if name not in ALLOWED | RANDOM or str(op) in _REFUSED:
        return _NOT_ALLOWED
    return None
