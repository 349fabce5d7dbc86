"""Calls to the members of a group."""
