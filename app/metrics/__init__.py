"""Metrics of this process, and how they are read: the one registry, and the code that fills it."""
