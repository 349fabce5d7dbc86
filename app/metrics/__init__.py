"""What this process measures, and how it is read: the one registry, and what fills it."""
