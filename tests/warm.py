"""What processes of tests import, once."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import gymnasium  # noqa: F401
    import torch
    import torchrl.objectives  # noqa: F401

    import hooktrainer.algorithms.ppo
    import hooktrainer.hooks.evaluate
    import hooktrainer.run.ranks
    import hooktrainer.run.recipe  # noqa: F401

torch.set_num_threads(1)
