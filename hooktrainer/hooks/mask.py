"""Drop the padding of split trajectories."""

from __future__ import annotations

from tensordict import TensorDictBase

from ..base.batches import valid_steps


def mask_batch(batch: TensorDictBase) -> TensorDictBase:
    """Keep the steps that ``("collector", "mask")`` marks as valid.

    Register it at ``batch_process``.

    Args:
        batch: ``[trajectories, time]``, padded in time, with a boolean mask of that shape.

    Returns:
        ``[number of valid steps]``; ``batch`` itself if it has no mask.
    """
    return valid_steps(batch)
