"""Causes: why something waits, what that means and what to do."""
