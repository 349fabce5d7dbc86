"""Decisions of a store server, without any I/O (rebalance/tech-notes/store.md)."""
