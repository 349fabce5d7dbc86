"""Moves: the steps of a replication group from one assignment to the next, and where it stands."""
