"""Copies of a group's data: snapshots and revisions into another store."""
