"""Certificates of ``zonectl up``, from authorities of its own that no system trusts.

| Folder of ``tls/`` | Certificate for | Key of the authority |
|---|---|---|
| ``machines`` | etcd, members, mirrors, store servers, and their clients | not kept |
| ``api`` | HTTPS of the API | kept, to renew the certificate |

Both authorities may sign for the host ``localhost`` alone; that of the API also for loopback addresses alone.
gRPC's library refuses certificates under a constraint on addresses, so that of machines has none: it never
signs again, and only the installation's own processes trust it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rebalance.hosting.private_files import replace_privately
from rebalance.hosting.tls import TlsFiles

HOST = "localhost"
ADDRESSES = ("127.0.0.1", "::1")
NETWORKS = ("127.0.0.0/8", "::1/128")
AUTHORITY_LIFE = timedelta(days=3650)
MACHINE_LIFE = AUTHORITY_LIFE
API_LIFE = timedelta(days=397)
"""Longest life that browsers accept."""
RENEWED_WITH_LEFT = 1 / 3
"""Part of its life; a certificate with as much left, or less, is renewed."""
CLOCK_SLACK = timedelta(minutes=5)
"""Time by which certificates begin earlier, so that a clock that is set back a little makes none invalid."""


@dataclass(frozen=True, slots=True)
class LocalAuthority:
    """One authority and the one certificate that it signs, in ``folder``, which is made with mode 0700.

    ``keeps_key``: the certificate is renewed under the same authority, else both are made anew.
    """

    folder: Path
    life: timedelta
    keeps_key: bool
    is_for_clients: bool
    """True: clients show the certificate as well."""

    @classmethod
    def of_machines(cls, data_dir: Path) -> LocalAuthority:
        """The authority of machines. Renew it while nothing runs: processes read it when they start."""
        return cls(data_dir.absolute() / "tls" / "machines", MACHINE_LIFE, False, True)

    @classmethod
    def of_api(cls, data_dir: Path) -> LocalAuthority:
        """The authority of the API. Renew it at any time: the key stays, and the certificate is replaced in one
        step."""
        return cls(data_dir.absolute() / "tls" / "api", API_LIFE, True, False)

    @property
    def files(self) -> TlsFiles:
        return TlsFiles(*(self.folder / f"{name}.pem" for name in ("authority", "certificate", "key")))

    def renewed(self, now: datetime) -> TlsFiles:
        """Return the files, made or renewed where they are missing, damaged, near their end at ``now``, or do
        not belong together. Raises OSError."""
        if not self._is_good(now):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in (self.folder.parent, self.folder):
                os.chmod(folder, 0o700)
            self._issue(now)
        return self.files

    def _is_good(self, now: datetime) -> bool:
        try:
            self.files.check()
            certificate = x509.load_pem_x509_certificate(self.files.certificate.read_bytes())
            authority = x509.load_pem_x509_certificate(self.files.ca.read_bytes())
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, OSError, InvalidSignature):
            return False
        left = certificate.not_valid_after_utc - now
        return certificate.not_valid_before_utc <= now and left > self.life * RENEWED_WITH_LEFT

    def _issue(self, now: datetime) -> None:
        authority, signer = self._authority(now)
        key = self._key()
        uses = [ExtendedKeyUsageOID.SERVER_AUTH]
        if self.is_for_clients:
            uses.append(ExtendedKeyUsageOID.CLIENT_AUTH)
        names = [x509.DNSName(HOST), *(x509.IPAddress(ip_address(each)) for each in ADDRESSES)]
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
        end = min(now + self.life, authority.not_valid_after_utc)
        certificate = (
            _builder(_name(f"Zonekeeper {self.folder.name}"), authority.subject, key, now, end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(issuer, critical=False)
            .sign(signer, hashes.SHA256())
        )
        replace_privately(self.files.key, _pem(key))
        replace_privately(self.files.ca, authority.public_bytes(Encoding.PEM))
        replace_privately(self.files.certificate, certificate.public_bytes(Encoding.PEM))

    def _authority(self, now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        """The existing authority, if it can sign for at least a whole life; else a new one."""
        kept = _read_key(self._authority_key) if self.keeps_key else None
        earlier = _read_certificate(self.files.ca)
        if kept is not None and earlier is not None and _lasts(earlier, kept, now + self.life):
            return earlier, kept
        signer = ec.generate_private_key(ec.SECP256R1())
        name = _name(f"Zonekeeper {self.folder.name}, this installation only")
        authority = (
            _builder(name, name, signer, now, now + AUTHORITY_LIFE)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_USES_OF_AUTHORITY, critical=True)
            .add_extension(x509.NameConstraints(self._permitted(), None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(signer.public_key()), critical=False)
            .sign(signer, hashes.SHA256())
        )
        if self.keeps_key:
            replace_privately(self._authority_key, _pem(signer))
        return authority, signer

    def _permitted(self) -> list[x509.GeneralName]:
        networks = [] if self.is_for_clients else [x509.IPAddress(ip_network(each)) for each in NETWORKS]
        return [x509.DNSName(HOST), *networks]

    def _key(self) -> ec.EllipticCurvePrivateKey:
        """The existing key where it is kept, since a server reads key and certificate one after the other; else
        a new one."""
        kept = _read_key(self.files.key) if self.keeps_key else None
        return kept or ec.generate_private_key(ec.SECP256R1())

    @property
    def _authority_key(self) -> Path:
        return self.folder / "authority-key.pem"


_USES_OF_AUTHORITY = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SLACK)
        .not_valid_after(end)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _lasts(authority: x509.Certificate, key: ec.EllipticCurvePrivateKey, end: datetime) -> bool:
    return authority.public_key() == key.public_key() and authority.not_valid_after_utc >= end


def _read_certificate(path: Path) -> x509.Certificate | None:
    """The certificate in a file; None: there is none that can be read."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        return None


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey | None:
    """The private key in a file; None: there is none that can be used."""
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError):
        return None
    return key if isinstance(key, ec.EllipticCurvePrivateKey) else None
