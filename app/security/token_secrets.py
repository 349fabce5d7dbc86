"""Secrets that are made here and shown once, and the token of scrapers, which gives access to the metrics of
processes and to nothing else. It is in a file, not in the catalog, so that scrapes are answered while the
catalog is away."""

from __future__ import annotations

import hmac
import secrets
from pathlib import Path

from rebalance.hosting.private_files import replace_privately

PREFIX = "zkt_"
"""Beginning of a token's secret."""
SESSION_PREFIX, LINK_PREFIX = "zks_", "zkl_"
SECRET_BYTES = 32


def new_secret(prefix: str = PREFIX) -> str:
    """Make a secret: ``prefix``, which says its kind, and 43 characters of the URL-safe alphabet with 256
    random bits."""
    return prefix + secrets.token_urlsafe(SECRET_BYTES)


TOKEN_CHARS_MIN = 32


class ScrapeToken:
    """The token in ``path``, which is read each time: it may be replaced at any time. While it cannot be read,
    or is shorter than ``TOKEN_CHARS_MIN``, no header is accepted."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def is_in(self, authorization: str) -> bool:
        """True if a header ``Authorization: Bearer ...`` shows the token."""
        scheme, _, shown = authorization.strip().partition(" ")
        try:
            token = self._path.read_bytes().strip()
        except OSError:
            return False
        if scheme.lower() != "bearer" or len(token) < TOKEN_CHARS_MIN:
            return False
        return hmac.compare_digest(shown.strip().encode(), token)


def keep_scrape_token(path: Path) -> None:
    """Make the file when it is not there. Raises OSError."""
    if not path.exists():
        replace_privately(path, f"{secrets.token_urlsafe(TOKEN_CHARS_MIN)}\n".encode())
