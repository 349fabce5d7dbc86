"""Certificates: whom a client trusts, and what it shows to members that ask for one."""

from __future__ import annotations

import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOOK_S = 2.0
CONNECTED = "connection.connect_tcp.complete"
NOT_SECURED = "connection.start_tls.failed"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the members' authority, and the machine's certificate with its key."""

    ca: Path
    certificate: Path
    key: Path


class ShownCertificate:
    """The files as they are now; those that do not belong together leave the earlier ones in force."""

    def __init__(self, files: TlsFiles, look_s: float = LOOK_S) -> None:
        """Looks at them again after ``look_s``. Raises OSError."""
        self._files = files
        self._look_s = look_s
        self._pem = self._read()
        self._looked_s = time.monotonic()

    def pem(self) -> tuple[bytes, bytes, bytes]:
        """Authority, key and certificate; the same object as long as they are in force."""
        if time.monotonic() - self._looked_s >= self._look_s:
            self._looked_s = time.monotonic()
            with suppress(OSError):
                if (pem := self._read()) != self._pem:
                    self._pem = pem
        return self._pem

    def context(self) -> ssl.SSLContext:
        """TLS context for a connection that is made now. Raises OSError."""
        context = trusting(self._files.ca.read_text())
        context.load_cert_chain(self._files.certificate, self._files.key)
        return context

    def _read(self) -> tuple[bytes, bytes, bytes]:
        self.context()
        return self._files.ca.read_bytes(), self._files.key.read_bytes(), self._files.certificate.read_bytes()


def trusting(authority: str) -> ssl.SSLContext:
    """``authority`` (PEM) has signed the other side's certificate; empty: one that the system trusts. Raises
    ssl.SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if authority:
        context.load_verify_locations(cadata=authority)
    else:
        context.load_default_certs()
    return context


def closed_handshakes() -> dict[str, Callable[[str, Mapping[str, Any]], Awaitable[None]]]:
    """``extensions`` of one request of ``httpx.AsyncClient``: the connection that it opens is closed where its
    handshake fails, also when it is cancelled: httpcore leaves that one open. Source: its ``trace`` extension.
    """
    opened: list[Any] = []

    async def noted(event: str, details: Mapping[str, Any]) -> None:
        if event == CONNECTED:
            opened[:] = [details["return_value"]]
        elif event == NOT_SECURED:
            for stream in opened:
                await stream.aclose()

    return {"trace": noted}
