"""Partitions, counted once for all that need their numbers: gauges, and the judge of alerts."""
