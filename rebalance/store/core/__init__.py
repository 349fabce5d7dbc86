"""What a store server decides, without any I/O (rebalance/tech-notes/store.md)."""
