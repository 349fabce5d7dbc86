"""Authentication: passwords, tokens, sessions, and the identity that a request proves; and the protection of a
machine. Privileges of a principal are decided by ``catalog.core.authorisation``."""
