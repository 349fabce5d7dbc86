"""TLS as an option: one certificate for each machine, for everything that it listens on and connects to.

Both sides show a certificate of the same authority (mutual TLS): who has none neither reads nor joins a group.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rebalance.hosting.loaded_certificate import LoadedCertificate


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
