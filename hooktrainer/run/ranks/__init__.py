"""Training with several processes, started by ``torchrun``, on one machine or many."""
