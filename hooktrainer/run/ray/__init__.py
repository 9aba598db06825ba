"""Collectors and evaluation in other processes and on other machines, by way of Ray."""
