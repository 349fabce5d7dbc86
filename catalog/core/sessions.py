"""Sessions of the console, and links that open one: what the catalog keeps of them. Times are microseconds
since 1970.

A session ends ``LIFETIME_US`` after its login, ``IDLE_US`` after its last use, or with a logout; the catalog
ends those of a user whose password or state changes.
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.core.access_tokens import digest_of
from catalog.core.principals import Principal

MINUTE_US = 60 * 1_000_000
LIFETIME_US = 8 * 60 * MINUTE_US
IDLE_US = 30 * MINUTE_US
LINK_US = 5 * MINUTE_US
LINKS_MAX = 10
"""Maximum number of usable links of one user."""
ID_CHARS = 12
USE_NOTED_US = MINUTE_US
"""A use is written down when the one that is known is older: not each request writes."""


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    """Session as the catalog keeps it. ``digest`` and ``csrf`` are SHA-256, in hex: of the secret in the
    browser's cookie, and of what its pages send with a logout."""

    digest: str
    owner: Principal
    csrf: str
    created_us: int
    used_us: int
    expires_us: int

    @property
    def session_id(self) -> str:
        """Return the id that it is listed by. Says nothing of the secret."""
        return self.digest[:ID_CHARS]

    @property
    def ends_us(self) -> int:
        """Unless it is used before."""
        return min(self.expires_us, self.used_us + IDLE_US)

    def is_valid(self, now_us: int) -> bool:
        return now_us < self.ends_us


@dataclass(frozen=True, slots=True)
class OneTimeLink:
    """``digest``: SHA-256 of the secret in the link's fragment, in hex."""

    digest: str
    owner: Principal
    created_us: int
    expires_us: int


def csrf_of(secret: str) -> str:
    """Return the value by which a page proves that it is one of ours: it follows from the secret in the cookie,
    which no page can read, and says nothing about it."""
    return digest_of(f"csrf of {secret}")


def opened_session(owner: Principal, secret: str, now_us: int) -> ConsoleSession:
    csrf = digest_of(csrf_of(secret))
    return ConsoleSession(digest_of(secret), owner, csrf, now_us, now_us, now_us + LIFETIME_US)


def issued_link(owner: Principal, secret: str, now_us: int) -> OneTimeLink:
    return OneTimeLink(digest_of(secret), owner, now_us, now_us + LINK_US)
