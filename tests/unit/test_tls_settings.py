"""Mistakes that a user who turns TLS on can make."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from app.configuration.settings import Settings


def files(directory: Path) -> dict[str, Path]:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    paths = {name: directory / f"{name}.pem" for name in ("tls_ca", "tls_certificate", "tls_key")}
    authority.cert_pem.write_to_path(paths["tls_ca"])
    issued.cert_chain_pems[0].write_to_path(paths["tls_certificate"])
    issued.private_key_pem.write_to_path(paths["tls_key"])
    return paths


def test_no_file_no_tls() -> None:
    assert Settings().tls is None


def test_all_three_files(tmp_path: Path) -> None:
    found = Settings(**files(tmp_path)).tls
    assert found is not None
    assert found.key == tmp_path / "tls_key.pem"


@pytest.mark.parametrize("missing", ["tls_ca", "tls_certificate", "tls_key"])
def test_two_of_three_are_refused(tmp_path: Path, missing: str) -> None:
    given = files(tmp_path)
    del given[missing]
    with pytest.raises(ValueError, match="needs all of ZONEKEEPER_TLS_CA"):
        _ = Settings(**given).tls


def test_a_metastore_with_tls_needs_them_too() -> None:
    with pytest.raises(ValueError, match="needs all of"):
        _ = Settings(metastore_tls=True).tls


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    given = files(tmp_path)
    given["tls_key"].unlink()
    with pytest.raises(ValueError, match=r"no file .*tls_key.pem for the key"):
        _ = Settings(**given).tls


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    given = files(tmp_path)
    (tmp_path / "other").mkdir()
    given["tls_key"] = files(tmp_path / "other")["tls_key"]
    with pytest.raises(ValueError, match="no certificate with its key"):
        _ = Settings(**given).tls
