"""One operator call of a program: which may be called, with arguments checked by its schema.

Arguments of other types (a storage, a generator, another layout) cannot be given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import torch

from ..base.untrusted import one_line
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
    """One call: an operator and its arguments by name; see `Program`.

    PyTorch checks the types of arguments, first on the device ``meta``. ``index`` has the numbers
    of the values by name.
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
        self._function: Callable[..., Any] = _item
        self._index = index
        kinds = {"of": "Tensor", "number": "int"}
        places = list(kinds)
        self._arguments: dict[str, Any] = {}
        if target != "getitem":
            self._function = operator_named(target, random)
            schema = cast(Any, self._function)._schema.arguments
            kinds = {one.name: str(one.type) for one in schema}
            places = [one.name for one in schema if not one.kwarg_only]
            self._arguments = {
                one.name: one.default_value for one in schema if one.has_default_value()
            }
        given = {**dict(zip(places, args, strict=False)), **kwargs}
        if len(given) < len(args) + len(kwargs) or given.keys() - kinds.keys():
            raise TypeError(
                f"{target} does not take {len(args)} arguments and {list(kwargs)!r:.80}"
            )
        for name, value in given.items():
            if name not in _MADE_HERE:
                self._arguments[name] = self._parse(value, kinds[name])
        if "device" in self._arguments:
            self._arguments["device"] = "cpu"
        self._filled = {name: value for name, value in self._arguments.items() if _varies(value)}

    @property
    def operands(self) -> list[int]:
        """The numbers of the values that it takes, in order."""
        return [one for one in _flat(list(self._filled.values())) if isinstance(one, Value)]

    def arguments(self, values: Sequence[Any], batch: int, device: str = "cpu") -> dict[str, Any]:
        """Return all arguments by name; new tensors are to be made on the device."""
        arguments = self._arguments.copy()
        for name, value in self._filled.items():
            arguments[name] = _fill(value, values, batch)
        if device != "cpu" and "device" in arguments:
            arguments["device"] = device
        return arguments

    def run(self, arguments: Mapping[str, Any]) -> Any:
        """Call the operator."""
        try:
            if self.target in _SHAPES and arguments["self"].is_meta:
                return torch.empty_like(arguments["self"])
            return self._function(**arguments)
        except Exception as error:
            reason = one_line(f"{type(error).__name__}: {error}", 200)
            raise CheckpointError(
                f"the policy's operator {self.target} cannot be calculated: {reason}"
            ) from None

    def check(self, arguments: Mapping[str, Any]) -> int:
        """Check arguments that the operator does not; return the bytes it needs temporarily."""
        check = _CHECKS.get(self.target.partition(".")[2].partition(".")[0])
        try:
            return 0 if check is None else check(self.target, arguments)
        except (TypeError, AttributeError, LookupError) as error:
            raise CheckpointError(f"{self.target} cannot be calculated: {error!s:.200}") from None

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
                return Value(self._index[value.removeprefix("%")])
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
    return [one for item in value for one in _flat(item)] if isinstance(value, list) else [value]


def _varies(value: Any) -> bool:
    return any(isinstance(one, Value | Batch) for one in _flat(value))


def _fill(value: Any, values: Sequence[Any], batch: int) -> Any:
    if isinstance(value, Value):
        return values[value]
    if isinstance(value, list):
        return [_fill(item, values, batch) for item in value]
    return int(value) * batch if isinstance(value, Batch) else value


# -- The operators that a policy's program may call: those that networks need, and no other.

_CORE: Final = """
    _adaptive_avg_pool2d _adaptive_avg_pool3d _cdist_forward _log_softmax _softmax _to_copy abs
    acos acosh add addmm alias amax amin any arange argmax argmin asin asinh atan atan2 atanh
    avg_pool2d avg_pool3d bitwise_and bitwise_not bitwise_or bitwise_xor bmm cat ceil clamp clone
    constant_pad_nd convolution copy cos cosh cumsum diagonal div elu embedding eq erf exp expand
    expm1 fill flip floor fmod full full_like gather ge gelu gt hardtanh index index_put
    index_select isinf isnan le leaky_relu log log10 log1p log2 logical_and logical_not logical_or
    logical_xor lt max max_pool2d_with_indices max_pool3d_with_indices maximum mean min minimum mm
    mul native_layer_norm ne neg permute pow prod reciprocal relu remainder repeat round rsqrt
    scalar_tensor scatter scatter_add scatter_reduce select select_scatter sigmoid sign sin sinh
    slice slice_scatter sort split_with_sizes sqrt squeeze sub sum tan tanh topk trunc unsqueeze
    var view where
"""  # of PyTorch's core operators, into which recording takes the others apart
_OTHERS: Final = """
    __lshift__ __rshift__ adaptive_max_pool2d adaptive_max_pool3d addbmm addmv
    bitwise_left_shift bitwise_right_shift bucketize copysign cummax cummin cumprod dist erfc
    erfinv exp2 fmax fmin hypot kthvalue lgamma lift_fresh lift_fresh_copy linalg_vector_norm
    logcumsumexp median mode signbit special_erfcx transpose unfold var_mean
"""
ALLOWED: Final = frozenset((_CORE + _OTHERS).split())
"""Names of allowed operators, in every overload that has no side effects."""
_RANDOM: Final = """
    bernoulli cauchy exponential geometric log_normal multinomial normal normal_functional rand
    rand_like randint randint_like randn randn_like uniform _sample_dirichlet _standard_gamma
"""
RANDOM: Final = frozenset(_RANDOM.split())
"""Further operators of a program that samples."""
_SHAPES: Final = ("aten._sample_dirichlet.default",)


def operator_named(target: str, random: bool = False) -> Callable[..., Any]:
    """Return the operator of a name such as ``aten.add.Tensor``, ``random`` ones on request."""
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
    returned = {str(one.type) for one in schema.returns}
    if name not in ALLOWED | RANDOM or returned - {"Tensor", "List[Tensor]"}:
        return _NOT_ALLOWED
    return _NOT_ALLOWED if str(op) == "aten.view.dtype" else None


# -- Arguments that an operator does not check itself, and memory that it takes besides its result.


def _convolution(target: str, arguments: Mapping[str, Any]) -> int:
    """Memory of the columns that a convolution may be unfolded into."""
    given, weight = arguments["input"], arguments["weight"]
    spatial = weight.dim() - 2
    least = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0}
    numbers = {
        name: arguments[name] * (spatial if len(arguments[name]) == 1 else 1) for name in least
    }
    fits = 1 <= spatial <= 3 and given.dim() in (spatial + 1, spatial + 2)
    fits = fits and all(len(numbers[name]) == spatial for name in least)
    fits = fits and all(low <= n < 1 << 20 for name, low in least.items() for n in numbers[name])
    if not fits or arguments["groups"] < 1 or 0 in weight.shape:
        raise CheckpointError(f"{target} has arguments that do not fit together.")
    places = given.shape[-spatial:]
    if not arguments["transposed"]:
        places = [
            max(0, (size + 2 * pad - dilation * (length - 1) - 1) // stride + 1)
            for size, length, stride, pad, dilation, _ in zip(
                places, weight.shape[2:], *numbers.values(), strict=True
            )
        ]
    batch = given.shape[0] if given.dim() > spatial + 1 else 1
    across = math.prod(weight.shape[1:]) * arguments["groups"] * weight.element_size()
    return batch * math.prod(places) * across


def _division(target: str, arguments: Mapping[str, Any]) -> int:
    if arguments.get("rounding_mode") == "trunc":  # the least integer by -1 ends the process
        raise CheckpointError(f"{target} divides towards zero; use rounding_mode='floor'.")
    return 0


def _masks(target: str, arguments: Mapping[str, Any]) -> int:
    """Memory of a mask's indices."""
    masks = [t for t in arguments["indices"] if t is not None and t.element_size() == 1]
    if masks and target.startswith("aten.index."):
        raise CheckpointError(f"{target} takes as many values as a mask has; use torch.where.")
    return sum(8 * (mask.dim() + 1) * math.prod(mask.shape) for mask in masks)


_CHECKS: Final[Mapping[str, Callable[[str, Mapping[str, Any]], int]]] = {
    "convolution": _convolution,
    "div": _division,
    **dict.fromkeys(("index", "index_put"), _masks),
}
