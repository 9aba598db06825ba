"""The loop: the trainer, its ten hook points, and what they are made of."""
