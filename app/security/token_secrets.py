"""Secrets that are made here and shown once."""

from __future__ import annotations

import secrets

PREFIX = "zkt_"
SECRET_BYTES = 32


def new_secret() -> str:
    """Of a token: ``zkt_`` and 43 characters of the URL-safe alphabet, which hold 256 random bits."""
    return PREFIX + secrets.token_urlsafe(SECRET_BYTES)
