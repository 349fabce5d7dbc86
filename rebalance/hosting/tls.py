"""TLS as an option: one certificate for each machine, for everything that it listens on and connects to.

Both sides show a certificate of the same authority (mutual TLS): who has none neither reads nor joins a group.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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
            self.context()
        except (ssl.SSLError, OSError) as error:
            message = f"TLS: {self.ca}, {self.certificate} and {self.key} cannot be used: {error}"
            raise ValueError(message) from error

    def credentials(self) -> Any:
        """For a gRPC channel. Read anew for each, so that certificates can be replaced while all runs."""
        import grpc  # a tenth of a second, which commands that only know the settings need not spend

        return grpc.ssl_channel_credentials(
            self.ca.read_bytes(), self.key.read_bytes(), self.certificate.read_bytes()
        )

    def context(self) -> ssl.SSLContext:
        """For an HTTPS request to a member's peer port."""
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self.certificate, self.key)
        return context

    def server_context(self) -> ssl.SSLContext:
        """For a port that takes those with a certificate of the authority, and nobody else."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.ca))
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(self.certificate, self.key)
        return context


def tls_flags(files: TlsFiles) -> dict[str, object]:
    """Of an etcd on whose ports both clients and peers show a certificate too."""
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
