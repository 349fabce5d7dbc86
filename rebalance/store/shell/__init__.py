"""A store server's disk, network and clock around its core (rebalance/tech-notes/store.md)."""
