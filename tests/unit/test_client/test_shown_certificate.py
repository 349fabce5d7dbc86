"""Certificate that a direct client shows to members, while its files are replaced under it."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from tests.fixtures.tls_files import tls_files
from zonekeeper_client.tls import ShownCertificate, TlsFiles


def test_another_certificate_is_shown_once_its_files_belong_together(tmp_path: Path) -> None:
    """One object as long as nothing changes: a channel is opened anew for another one."""
    authority = trustme.CA()
    written = tls_files(tmp_path, authority)
    files = TlsFiles(written.ca, written.certificate, written.key)
    shown = ShownCertificate(files, look_s=0.0)
    before = shown.pem()
    assert shown.pem() is before
    key = files.key.read_bytes()
    tls_files(tmp_path, authority)
    after = files.key.read_bytes()
    files.key.write_bytes(key)
    assert shown.pem() is before
    files.key.write_bytes(after)
    assert shown.pem() != before
    assert shown.pem() is shown.pem()


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ShownCertificate(TlsFiles(*(tmp_path / name for name in ("ca.pem", "cert.pem", "key.pem"))))
