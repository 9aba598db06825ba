"""The training loop: hook points, registry, metrics, cadences, timing and state."""
