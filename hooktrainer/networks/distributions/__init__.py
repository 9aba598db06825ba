"""Distributions over actions: one for each kind of action space."""
