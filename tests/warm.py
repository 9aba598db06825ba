"""What processes of tests import, once."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import gymnasium  # noqa: F401
    import torch
    import torchrl.objectives  # noqa: F401

    from hooktrainer import Evaluate  # noqa: F401
    from hooktrainer.algorithms import PPO  # noqa: F401
    from hooktrainer.run import DataParallel, launch  # noqa: F401

torch.set_num_threads(1)
