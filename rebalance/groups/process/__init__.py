"""Members as processes on this node."""
