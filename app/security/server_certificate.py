"""The certificate that the API shows: read from files, and again whenever they change, without a restart."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import structlog
from cryptography import x509

log = structlog.get_logger(__name__)

LOOK_S = 2.0


class ServerCertificate:
    """``context`` is one for the life of the process: connections that are open keep what they were made
    with."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Raises ValueError, naming the files, when they are no certificate with its key."""
        self._files = certificate, key
        self._marks = self._seen()
        self._check()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        self.context.load_cert_chain(certificate, key)
        self.expiry_s = expiry_of(certificate)
        """Of the one that is shown; None: not known."""

    @property
    def file(self) -> Path:
        return self._files[0]

    def demand(self, authority: Path) -> None:
        """From now on clients show a certificate of ``authority``. Raises ValueError for a file without one."""
        try:
            self.context.load_verify_locations(authority)
        except OSError as error:
            raise ValueError(f"{authority} is no certificate: {error}") from error
        self.context.verify_mode = ssl.CERT_REQUIRED

    async def follow(self) -> None:
        """Until cancelled. Files that are no certificate with its key leave the earlier one in place."""
        while True:
            await asyncio.sleep(LOOK_S)
            marks = self._seen()
            if marks != self._marks:
                self._marks = marks
                self._reload()

    def _reload(self) -> None:
        try:
            self._check()
            self.context.load_cert_chain(*self._files)
        except (ValueError, OSError) as error:
            log.error("certificate not reloaded", error=str(error))
        else:
            self.expiry_s = expiry_of(self._files[0])
            log.info("certificate reloaded", file=str(self._files[0]))

    def _check(self) -> None:
        """In a context of its own: one that fails half way keeps half of it."""
        certificate, key = self._files
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
        except OSError as error:
            raise ValueError(f"{certificate} and {key} are no certificate with its key: {error}") from error

    def _seen(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_mark, self._files))


def expiry_of(certificate: Path) -> float | None:
    """When the first certificate of a PEM file expires, in seconds since 1970; None: it cannot be read."""
    try:
        return x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc.timestamp()
    except (OSError, ValueError):
        return None


def _mark(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
