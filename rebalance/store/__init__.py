"""The store engine: all copies of a node in one process, owned by the partition map exchange."""
