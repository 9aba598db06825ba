"""Runs: configuration, directory and identity, resume, and placement of their parts."""
