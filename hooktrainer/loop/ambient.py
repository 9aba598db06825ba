"""What is global to a process and belongs to the loop that is running."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.random import mtrand
from tensordict.nn import set_interaction_type
from tensordict.nn.probabilistic import interaction_type

from .python_generator import PythonGenerator

T = TypeVar("T")


class Ambient:
    """The global random generators, gradient mode and exploration type, as one loop knows them.

    As it is made, it takes them over as they are. Those of accelerators are not among them.
    """

    def __init__(self) -> None:
        self._numpy = np.random.MT19937()
        self._numpy.state = np.random.get_state(legacy=False)  # type: ignore[assignment]
        self._python = PythonGenerator()
        self.leave()

    def enter(self) -> None:
        """Have them be as the loop left them."""
        self._set(self._numpy)

    def leave(self) -> None:
        """Remember them as the loop leaves them."""
        self._python.leave()
        self._torch = torch.default_generator.get_state()
        self._has_grad = torch.is_grad_enabled()
        self._exploration = interaction_type()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """In the block others enter and leave; behind it everything is as before."""
        numpy = mtrand.get_bit_generator()
        try:
            yield
        finally:
            self._set(numpy)

    def _set(self, numpy: Any) -> None:
        mtrand.set_bit_generator(numpy)
        self._python.enter()
        torch.default_generator.set_state(self._torch)
        torch.set_grad_enabled(self._has_grad)
        set_interaction_type(self._exploration).__enter__()

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call something that draws from torch's generator alone, as the loop would.

        Exchanging the others takes ten times as long.
        """
        generator = torch.default_generator
        generator.set_state(self._torch)
        try:
            return function(*args)
        finally:
            self._torch = generator.get_state()
