"""Summaries, curves, pages and films of runs, read from their directories."""
