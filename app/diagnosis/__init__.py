"""Diagnosis of an installation: checks that decide what is wrong, and probes that look without changing
anything."""
