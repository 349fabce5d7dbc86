"""Partition maps and the versions of the topology that they belong to."""
