from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch

from hooktrainer.store import flatten, rng_state, set_rng_state, undisturbed, unflatten


def draw():
    return random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), torch.rand(1)


def test_every_generator_continues_where_it_was():
    random.gauss(0, 1), np.random.randn()  # both keep a second normal value for later
    skeleton, tensors = flatten(rng_state())
    first = draw()
    draw()
    set_rng_state(unflatten(json.loads(json.dumps(skeleton)), tensors))
    assert draw() == first


def test_what_is_drawn_in_the_block_is_drawn_again():
    random.gauss(0, 1), np.random.randn()
    drawn = []

    @undisturbed()
    def fails():
        drawn.append(draw())
        raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert [draw()] == drawn


def test_missing_devices_are_reported():
    state = rng_state()
    state["cuda"] = [torch.get_rng_state()] * (torch.cuda.device_count() + 1)
    with pytest.warns(RuntimeWarning, match="CUDA devices"):
        set_rng_state(state)
