"""Secrets that are in files, so that they are in no command line and in no environment."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, urlsplit

SECRET_BYTES_MAX = 4_096
PASSWORD_FILE = "password_file"
"""The parameter of a database URL that names the file of its password."""


def read_secret(path: Path) -> str:
    """The file's text without the end of its line. Raises ValueError, naming the file."""
    try:
        with path.open("rb") as stream:
            content = stream.read(SECRET_BYTES_MAX + 1)
        text = content.decode().rstrip("\r\n")
    except OSError as error:
        raise ValueError(f"secret file {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"secret file {path}: not UTF-8") from error
    if not text or len(content) > SECRET_BYTES_MAX or "\n" in text:
        raise ValueError(f"secret file {path}: one line of at most {SECRET_BYTES_MAX} bytes is accepted")
    return text


def with_password_file(url: str, file: Path) -> str:
    """Raises ValueError for a URL that names no user or has a password, and for a file that holds none."""
    parts = urlsplit(url)
    if not parts.username or parts.password is not None:
        raise ValueError("with ZONEKEEPER_CATALOG_PASSWORD_FILE, the catalog's URL has a user and no password")
    read_secret(file)
    parameter = f"{PASSWORD_FILE}={quote(str(file.absolute()), safe='')}"
    return parts._replace(query=f"{parts.query}&{parameter}".lstrip("&")).geturl()
