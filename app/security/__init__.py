"""Who asks: passwords, tokens, and what a request proves of its sender; and how a machine is protected. What a
principal may do is decided by ``catalog.core.authorisation``."""
