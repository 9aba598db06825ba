"""Everything that exists only for what people bring from TorchRL.

The rest of the package knows nothing of TorchRL's trainer. Here its later stages are put at the ten
points, its hooks find the names they expect, its steppers take their steps, collectors that write
into a replay buffer yield batches, and its checkpoints are read and written.
"""
