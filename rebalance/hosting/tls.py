"""TLS as an option: one certificate for each machine, for everything that it listens on and connects to.

Both sides show a certificate of the same authority (mutual TLS): who has none neither reads nor joins a
group. The certificate is read from its files, and again whenever they change, without a restart
(``LoadedCertificate``).
"""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import structlog

from rebalance.hosting.tls_handshakes import SharedContext

log = structlog.get_logger(__name__)

LOOK_S = 2.0

Mark = tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class CertificateEnd:
    """``ends_s``: since 1970."""

    file: Path
    ends_s: float


@dataclass(frozen=True, slots=True)
class _Loaded:
    """``pem``: of authority, key and certificate. ``client`` None: there is no authority to trust."""

    server: ssl.SSLContext
    client: ssl.SSLContext | None
    pem: tuple[bytes, bytes, bytes]


class LoadedCertificate:
    """Certificate that connections made now show; those that stand keep what they were made with. Files that do
    not belong together leave the earlier ones in force. Safe for threads."""

    def __init__(self, certificate: Path, key: Path, authority: Path | None = None) -> None:
        """Load the files; with ``authority``, both sides show a certificate that it has signed. Raises
        ValueError, naming the files, when they do not belong together."""
        self._certificate, self._key, self._authority = certificate, key, authority
        self._lock = Lock()
        self._marks = self._seen()
        self._loaded = self._load()
        self._looked_s = time.monotonic()

    def server_context(self) -> ssl.SSLContext:
        """Return the context for servers; another object once other files are in force."""
        return self._present().server

    def client_context(self) -> ssl.SSLContext:
        """Return the context for clients, as ``server_context``. Only with an authority."""
        client = self._present().client
        assert client is not None
        return client

    def pem(self) -> tuple[bytes, bytes, bytes]:
        """Authority, key and certificate; the same object as long as they are in force."""
        return self._present().pem

    def ends(self) -> tuple[CertificateEnd, ...]:
        """Return when each of those in force ends, the certificate's before the authority's."""
        authority, _, certificate = self._present().pem
        read = zip(self.files, (certificate, authority), strict=False)
        ends = ((file, _end_in(pem)) for file, pem in read)
        return tuple(CertificateEnd(file, ends_s) for file, ends_s in ends if ends_s is not None)

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the files of certificates."""
        return (self._certificate, self._authority) if self._authority is not None else (self._certificate,)

    def _present(self) -> _Loaded:
        with self._lock:
            now_s = time.monotonic()
            if now_s - self._looked_s >= LOOK_S:
                self._looked_s = now_s
                marks = self._seen()
                if marks != self._marks:
                    self._reload(marks)
            return self._loaded

    def _reload(self, marks: tuple[Mark, ...]) -> None:
        try:
            loaded, error = self._load(), None
        except ValueError as reason:
            loaded, error = self._loaded, reason
        if self._seen() != marks:
            return  # written at this moment: the next look finds them whole
        self._marks, self._loaded = marks, loaded
        if error is None:
            log.info("certificate reloaded", file=str(self._certificate))
        else:
            log.error("certificate not reloaded", error=str(error))

    def _load(self) -> _Loaded:
        try:
            pem = (
                self._authority.read_bytes() if self._authority is not None else b"",
                self._key.read_bytes(),
                self._certificate.read_bytes(),
            )
            server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), None
            server.minimum_version = ssl.TLSVersion.TLSv1_2
            server.set_alpn_protocols(["http/1.1"])
            server.load_cert_chain(self._certificate, self._key)
        except OSError as error:
            message = f"{self._certificate} and {self._key} are no certificate with its key: {error}"
            raise ValueError(message) from error
        if self._authority is not None:
            try:
                server.load_verify_locations(self._authority)
                server.verify_mode = ssl.CERT_REQUIRED
                client = SharedContext.trusting(pem[0].decode(errors="replace"))
                client.load_cert_chain(self._certificate, self._key)
            except OSError as error:
                raise ValueError(f"{self._authority} is not a certificate: {error}") from error
        return _Loaded(server, client, pem)

    def _seen(self) -> tuple[Mark, ...]:
        files = self._certificate, self._key, self._authority
        return tuple(_mark(file) for file in files if file is not None)


def ends_of(certificate: Path) -> float | None:
    """Return when the first certificate of a PEM file ends, in seconds since 1970; None: it cannot be read."""
    try:
        return _end_in(certificate.read_bytes())
    except OSError:
        return None


def _end_in(pem: bytes) -> float | None:
    from cryptography import x509  # a tenth of a second, for which no start waits

    try:
        return x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()
    except ValueError:
        return None


def _mark(path: Path) -> Mark:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. The certificate names the machine's addresses and allows both server and client use."""

    ca: Path
    certificate: Path
    key: Path

    def check(self) -> None:
        """Raises ValueError, naming what cannot be read or does not belong together."""
        for what, path in (("authority", self.ca), ("certificate", self.certificate), ("key", self.key)):
            if not path.is_file():
                raise ValueError(f"TLS: there is no file {path} for the {what}")
        try:
            LoadedCertificate(self.certificate, self.key, self.ca)
        except ValueError as error:
            raise ValueError(f"TLS: {error}") from error

    def credentials(self) -> Any:
        """Return credentials for one gRPC channel, which keeps them: see ``TlsChannel``."""
        import grpc  # a tenth of a second, which commands that only know the settings need not spend

        return grpc.ssl_channel_credentials(*self.pem())

    def pem(self) -> tuple[bytes, bytes, bytes]:
        """Authority, key and certificate that are in force; the same object as long as they are."""
        return loaded(self).pem()

    def context(self) -> ssl.SSLContext:
        """Return the context for a connection made now, to servers with a certificate of the authority."""
        return loaded(self).client_context()

    def server_context(self) -> ssl.SSLContext:
        """Return the context for a connection made now, from clients with a certificate of the authority
        alone."""
        return loaded(self).server_context()


@cache
def loaded(files: TlsFiles) -> LoadedCertificate:
    """Return the loaded certificate of the files: one for all connections of this process. Raises
    ValueError."""
    return LoadedCertificate(files.certificate, files.key, files.ca)


def tls_flags(files: TlsFiles) -> dict[str, object]:
    """Return the flags of an etcd on whose ports both clients and peers show a certificate too."""
    return {
        f"{peer}{flag}": value
        for peer in ("", "peer-")
        for flag, value in {
            "trusted-ca-file": files.ca,
            "cert-file": files.certificate,
            "key-file": files.key,
            "client-cert-auth": "true",
        }.items()
    }
