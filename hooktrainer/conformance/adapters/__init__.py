"""Adapters of trainers, one file each, imported when they are checked."""
