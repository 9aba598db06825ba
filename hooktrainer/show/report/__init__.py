"""Summaries of runs from their directories, their curves, and comparisons; without PyTorch."""
