"""The training loop: hook points, registry, dispatch, metrics, cadences, timing and state."""
