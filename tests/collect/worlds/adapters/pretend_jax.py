"""As much of JAX as an environment and what vectorizes it need, on PyTorch's own `vmap`.

Where JAX itself is installed, the same tests run with that.
"""

from __future__ import annotations

import importlib.util
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import torch
from torch.utils import _pytree as pytree


def _fold_in(key, data):
    mixed = (key + data) * 6364136223846793005 + 1442695040888963407
    return mixed ^ (mixed >> 29)


def _uniform(key, shape=()):
    return ((key[1] >> 20) & 0xFFFFFF).float() / 2**24 + torch.zeros(shape)


def _devices(kind):
    if kind != "cpu":
        raise RuntimeError(f"Unknown backend {kind}")
    return [kind]


def _arrays(function, *arguments):
    return pytree.tree_map(lambda x: x.numpy(), function(*arguments))


def pretended() -> SimpleNamespace:
    """A module that can be taken for ``jax``."""
    return SimpleNamespace(
        __spec__=None,
        jit=lambda function: function,
        vmap=torch.func.vmap,
        eval_shape=_arrays,
        devices=_devices,
        default_device=lambda device: nullcontext(),
        device_put=lambda array, device: torch.from_numpy(array),
        random=SimpleNamespace(
            PRNGKey=lambda seed: torch.tensor([0, seed]), fold_in=_fold_in, uniform=_uniform
        ),
        numpy=SimpleNamespace(
            where=torch.where,
            arange=torch.arange,
            stack=torch.stack,
            asarray=lambda values, dtype: torch.tensor(np.asarray(values, dtype)),
        ),
        dlpack=SimpleNamespace(from_dlpack=torch.from_dlpack),
        tree=SimpleNamespace(
            map=pytree.tree_map,
            leaves=pytree.tree_leaves,
            flatten=pytree.tree_flatten,
            unflatten=lambda tree, leaves: pytree.tree_unflatten(leaves, tree),
        ),
    )


def is_installed() -> bool:
    return importlib.util.find_spec("jax") is not None
