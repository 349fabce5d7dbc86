"""A password in a file: what is accepted, and that it is in nothing that is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import make_url

from app.configuration.settings import Settings
from catalog.secret_files import PASSWORD_FILE, read_secret

URL = "postgresql+psycopg://zonekeeper@db:5432/zonekeeper"


def settings(tmp_path: Path, content: bytes, url: str | None = URL) -> Settings:
    file = tmp_path / "password"
    file.write_bytes(content)
    return Settings(catalog_url=url, catalog_password_file=file)


@pytest.mark.parametrize("password", ["plain", "p@ss:w/rd?#%", "with blank", "ü"])
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_the_catalogs_password_is_read_from_its_file(tmp_path: Path, password: str, end: str) -> None:
    known = settings(tmp_path, f"{password}{end}".encode())
    url = make_url(known.catalog)
    assert (url.username, url.password, url.host, url.port) == ("zonekeeper", None, "db", 5432)
    assert read_secret(Path(str(url.query[PASSWORD_FILE]))) == password
    assert password not in repr(known)


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines", b"\xff", b"x" * 5_000])
def test_what_is_no_password_is_refused_without_being_shown(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ValueError, match=r"secret file .*password") as refused:
        _ = settings(tmp_path, content).catalog
    assert "xxx" not in str(refused.value)
    assert "two" not in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"secret file .*nowhere: No such file"):
        _ = Settings(catalog_url=URL, catalog_password_file=tmp_path / "nowhere").catalog


@pytest.mark.parametrize("url", [None, "postgresql://db/zonekeeper", "postgresql://a:b@db/zonekeeper"])
def test_a_url_without_a_user_or_with_a_password_has_no_place_for_it(tmp_path: Path, url: str | None) -> None:
    with pytest.raises(ValueError, match="a user and no password"):
        _ = settings(tmp_path, b"secret", url).catalog
