"""Statements: how they are read, queued and counted, and what they give back."""
