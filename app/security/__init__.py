"""Who asks: passwords, tokens, and what a request proves of its sender. What that allows is decided by
``catalog.core.authorisation``."""
