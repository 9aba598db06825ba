"""Adapters of other simulators to `TensorWorld`."""
