"""Partition map exchanges among simulated servers and clients: what replication groups do not expose.

Nothing runs by itself: somebody chooses each step (a seeded draw, or a property test), so that every order of
messages, events and crashes can be had, and any failure can be had again.
"""
