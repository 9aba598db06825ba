"""Support for hooks, collectors and checkpoints of TorchRL's trainer."""
