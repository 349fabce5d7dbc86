"""Passwords: kept as argon2id, checked off the event loop, at most two at once.

A password that was right is remembered for a minute under an HMAC with a key of this process, so that a driver
that sends it with each request costs one check. The HMAC covers the stored hash and the user's revision: after
any change of either the next request is checked again.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from catalog.core.errors import ErrorKind, RefusedError
from rebalance.hosting.client_connections import network_of

MEMORY_KIB = 19 * 1024
PASSES = 2
LANES = 1
AT_ONCE = 2
WAITING_MAX = 100
OF_ADDRESS_MAX = 50
"""Most logins of one address that are checked or wait, so that guesses from it leave room for others."""
REMEMBERED_S = 60.0
REMEMBERED_MAX = 10_000
PASSWORD_BYTES_MAX = 1_024

_HASHER = PasswordHasher(time_cost=PASSES, memory_cost=MEMORY_KIB, parallelism=LANES)


def hash_password(password: str) -> str:
    """Hash a password for storage: argon2id with its parameters and salt. Takes some 20 ms of a processor.
    Raises RefusedError (INVALID_REQUEST) for one that is empty or longer than ``PASSWORD_BYTES_MAX``."""
    if not 0 < len(password.encode()) <= PASSWORD_BYTES_MAX:
        message = f"a password has 1 to {PASSWORD_BYTES_MAX} bytes"
        raise RefusedError(ErrorKind.INVALID_REQUEST, message)
    return _HASHER.hash(password)


@dataclass(frozen=True, slots=True)
class StoredPassword:
    """Stored password of one user. ``hash`` None: there is none. ``revision`` changes with any change of the
    user."""

    user: str
    hash: str | None
    revision: int


class PasswordChecks:
    """Checks of passwords; one per process. ``clock``: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._key = secrets.token_bytes(32)
        # Somebody who does not exist is compared with this, and takes as long.
        self._nobody = _HASHER.hash(secrets.token_urlsafe(32))
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="password")
        self._remembered: dict[bytes, float] = {}
        self._running: dict[bytes, asyncio.Future[bool]] = {}
        self._of_network: Counter[str] = Counter()
        self.checks = 0
        """Number of passwords compared so far, those of unknown users included."""

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def is_right(self, stored: StoredPassword | None, password: str, address: str = "") -> bool:
        """True if the password is the user's. ``stored`` None: there is no such user. ``address``: that of the
        login. Raises RefusedError (LOGIN_LIMITED) while too many wait."""
        mark = self._mark(stored, password)
        until = self._remembered.get(mark)
        if until is not None and self._clock() < until:
            return True
        running = self._running.get(mark)
        if running is None:
            running = self._begin(mark, stored, password, network_of(address))
        # Requests that send the same at the same time share the check, and none ends it for the others.
        if not await asyncio.shield(running):
            return False
        self._remember(mark)
        return True

    def _begin(
        self, mark: bytes, stored: StoredPassword | None, password: str, network: str
    ) -> asyncio.Future[bool]:
        if self._of_network[network] >= OF_ADDRESS_MAX:
            message = f"{OF_ADDRESS_MAX} logins of this address wait for their passwords to be checked"
            raise RefusedError(ErrorKind.LOGIN_LIMITED, message)
        if len(self._running) >= AT_ONCE + WAITING_MAX:
            message = f"{WAITING_MAX} logins wait for their passwords to be checked"
            raise RefusedError(ErrorKind.LOGIN_LIMITED, message)
        self.checks += 1
        known = stored.hash if stored is not None else None
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._threads, _matches, known, self._nobody, password)
        self._running[mark] = running
        self._of_network[network] += 1

        def ended(_: object) -> None:
            self._running.pop(mark, None)
            self._of_network[network] -= 1
            if not self._of_network[network]:
                del self._of_network[network]

        running.add_done_callback(ended)
        return running

    def _mark(self, stored: StoredPassword | None, password: str) -> bytes:
        known = (stored.user, stored.hash, stored.revision) if stored is not None else ()
        text = repr((known, password)).encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, text, sha256)

    def _remember(self, mark: bytes) -> None:
        now = self._clock()
        if len(self._remembered) >= REMEMBERED_MAX:
            self._remembered = {known: until for known, until in self._remembered.items() if until > now}
        if len(self._remembered) < REMEMBERED_MAX:
            self._remembered[mark] = now + REMEMBERED_S


def _matches(known: str | None, nobody: str, password: str) -> bool:
    """Compare in a thread, with the same work for users who exist and for others."""
    given = password.encode("utf-8", "surrogatepass")
    is_too_long = len(given) > PASSWORD_BYTES_MAX
    try:
        _HASHER.verify(known or nobody, b"" if is_too_long else given)
    except (VerificationError, InvalidHashError):
        return False
    return known is not None and not is_too_long
