"""Secrets that are made here and shown once."""

from __future__ import annotations

import secrets

PREFIX = "zkt_"
"""Of a token's."""
SESSION_PREFIX, LINK_PREFIX = "zks_", "zkl_"
SECRET_BYTES = 32


def new_secret(prefix: str = PREFIX) -> str:
    """43 characters of the URL-safe alphabet, which hold 256 random bits, after what says whose they are."""
    return prefix + secrets.token_urlsafe(SECRET_BYTES)
