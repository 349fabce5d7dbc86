"""Certificates that an installation makes for itself: whom they name, who believes them, when they are new."""

from __future__ import annotations

import socket
import ssl
import stat
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from app.security.local_authority import API_LIFE, MACHINE_LIFE, LocalAuthority
from rebalance.hosting.tls import TlsFiles

NOW = datetime.now(UTC)
KINDS = pytest.mark.parametrize("kind", [LocalAuthority.of_machines, LocalAuthority.of_api])
Kind = Callable[[Path], LocalAuthority]
HANDSHAKE_S = 60


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def certificate_of(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """Raises SSLError as the client sees it; with TLS 1.3 a server's refusal comes with the first answer."""
    here, there = socket.socketpair()
    here.settimeout(HANDSHAKE_S)
    there.settimeout(HANDSHAKE_S)

    def serve() -> None:
        try:
            with server.wrap_socket(there, server_side=True) as connection:
                connection.sendall(b"served")
        except (ssl.SSLError, OSError):
            there.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(here, server_hostname=name) as connection:
            assert connection.recv(6) == b"served"
    finally:
        here.close()
        thread.join(HANDSHAKE_S)


@KINDS
def test_only_the_owner_reads_what_was_made(kind: Kind, tmp_path: Path) -> None:
    authority = kind(tmp_path)
    files = authority.renewed(NOW)
    files.check()
    for path in (authority.folder, authority.folder.parent):
        assert mode(path) == 0o700
    assert {mode(path) for path in authority.folder.iterdir()} == {0o600}


@KINDS
def test_the_authority_may_name_nothing_off_this_machine(kind: Kind, tmp_path: Path) -> None:
    authority = certificate_of(kind(tmp_path).renewed(NOW).ca)
    constraints = authority.extensions.get_extension_for_class(x509.NameConstraints)
    assert constraints.critical
    permitted = constraints.value.permitted_subtrees or []
    assert [each.value for each in permitted if isinstance(each, x509.DNSName)] == ["localhost"]
    networks = {each.value for each in permitted if isinstance(each, x509.IPAddress)}
    # gRPC's library refuses every certificate under a constraint of addresses.
    expected = set() if kind == LocalAuthority.of_machines else {ip_network("127.0.0.0/8"), ip_network("::1")}
    assert networks == expected
    basic = authority.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (basic.critical, basic.value.ca, basic.value.path_length) == (True, True, 0)


def test_a_machine_shows_one_certificate_as_server_and_as_client(tmp_path: Path) -> None:
    files = LocalAuthority.of_machines(tmp_path).renewed(NOW)
    for name in ("localhost", "127.0.0.1", "::1"):
        shake_hands(files.server_context(), files.context(), name)
    with pytest.raises(ssl.SSLCertVerificationError, match="other"):
        shake_hands(files.server_context(), files.context(), "other.example")
    without = ssl.create_default_context(cafile=str(files.ca))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        shake_hands(files.server_context(), without, "localhost")


def test_the_certificate_of_the_api_is_no_machines(tmp_path: Path) -> None:
    """Members refuse it, though it is of the same installation; and it cannot be a client's."""
    machines, api = (
        LocalAuthority.of_machines(tmp_path).renewed(NOW),
        LocalAuthority.of_api(tmp_path).renewed(NOW),
    )
    as_client = TlsFiles(machines.ca, api.certificate, api.key)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        shake_hands(machines.server_context(), as_client.context(), "localhost")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        shake_hands(api.server_context(), api.context(), "localhost")


def test_a_stolen_key_of_the_apis_authority_opens_no_other_place(tmp_path: Path) -> None:
    """A thief of the key can sign for another host, and no client takes the certificate."""
    authority = LocalAuthority.of_api(tmp_path)
    files = authority.renewed(NOW)
    signer = load_pem_private_key((authority.folder / "authority-key.pem").read_bytes(), None)
    own = load_pem_private_key(files.key.read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    assert isinstance(own, ec.EllipticCurvePrivateKey)
    trusting = ssl.create_default_context(cafile=str(files.ca))
    for name, general in (
        ("bank.example", x509.DNSName("bank.example")),
        ("192.0.2.7", x509.IPAddress(ip_address("192.0.2.7"))),
    ):
        forged = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(certificate_of(files.ca).subject)
            .public_key(own.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - timedelta(hours=1))
            .not_valid_after(NOW + timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([general]), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
            )
            .sign(signer, hashes.SHA256())
        )
        stolen = tmp_path / f"{name}.pem"
        stolen.write_bytes(forged.public_bytes(Encoding.PEM))
        server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        server.load_cert_chain(stolen, files.key)
        with pytest.raises(ssl.SSLCertVerificationError, match="permitted subtree violation"):
            shake_hands(server, trusting, name)


def test_no_key_that_could_sign_for_machines_is_left(tmp_path: Path) -> None:
    files = LocalAuthority.of_machines(tmp_path).renewed(NOW)
    assert {path.name for path in files.ca.parent.iterdir()} == {"authority.pem", "certificate.pem", "key.pem"}
    key = load_pem_private_key(files.key.read_bytes(), None)
    assert certificate_of(files.ca).public_key() != key.public_key()


@KINDS
def test_what_is_good_stays(kind: Kind, tmp_path: Path) -> None:
    def contents() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in kind(tmp_path).folder.iterdir()}

    kind(tmp_path).renewed(NOW)
    before = contents()
    kind(tmp_path).renewed(NOW + timedelta(days=30))
    assert contents() == before


def test_the_apis_certificate_is_renewed_in_one_step_under_one_authority(tmp_path: Path) -> None:
    authority = LocalAuthority.of_api(tmp_path)
    files = authority.renewed(NOW)
    ca, key, first = (path.read_bytes() for path in (files.ca, files.key, files.certificate))
    authority.renewed(NOW + API_LIFE * 0.6)
    assert files.certificate.read_bytes() == first
    later = NOW + API_LIFE * 0.7
    authority.renewed(later)
    assert (files.ca.read_bytes(), files.key.read_bytes()) == (ca, key)
    assert certificate_of(files.certificate).not_valid_after_utc > later + API_LIFE * 0.9


def test_machines_get_a_new_authority_in_time(tmp_path: Path) -> None:
    authority = LocalAuthority.of_machines(tmp_path)
    files = authority.renewed(NOW)
    first = files.ca.read_bytes()
    later = NOW + MACHINE_LIFE * 0.7
    authority.renewed(later)
    assert files.ca.read_bytes() != first
    assert certificate_of(files.certificate).not_valid_after_utc > later + MACHINE_LIFE * 0.9


@KINDS
@pytest.mark.parametrize("damaged", ["authority.pem", "certificate.pem", "key.pem"])
@pytest.mark.parametrize("text", [None, "", "no certificate"])
def test_what_is_missing_or_damaged_is_made_anew(
    kind: Kind, damaged: str, text: str | None, tmp_path: Path
) -> None:
    authority = kind(tmp_path)
    authority.renewed(NOW)
    if text is None:
        (authority.folder / damaged).unlink()
    else:
        (authority.folder / damaged).write_text(text)
    files = authority.renewed(NOW)
    files.check()
    certificate_of(files.certificate).verify_directly_issued_by(certificate_of(files.ca))
