"""Nodes: who is there, and which of them a zone uses."""
