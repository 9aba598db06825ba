"""Foundations: checks of values, text, child processes, files of unknown origin."""
