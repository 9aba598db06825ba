"""Processes that work for this one and never outlive it."""
