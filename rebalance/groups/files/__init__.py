"""A member's files and ports on its node."""
