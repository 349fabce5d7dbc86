"""``zonectl admin recover``, without a server."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.cli.main import main
from catalog.core.audit import AuditFilter
from catalog.core.authorisation import local_user
from catalog.store import CatalogStore
from catalog.store.migrate import migrate

Recover = Callable[..., tuple[int, str, str]]
PASSWORD = "correct horse battery"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'catalog.sqlite'}"


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """The command sets it for its process, which is that of the tests here."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def recover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Recover:
    def run(*options: str, stdin: str = f"{PASSWORD}\n") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        code = main(["admin", "recover", "--data-dir", str(tmp_path), *options])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def test_the_first_administrator_is_made_and_the_audit_says_so(recover: Recover, catalog_url: str) -> None:
    place = ("--password-stdin", "--catalog-url", catalog_url)
    code, shown, errors = recover("--user", "Alice", *place)
    assert (code, errors) == (0, "")
    assert shown == "alice is an administrator with a new password, and a new user\n"
    assert recover("--user", "alice", *place)[1] == "alice is an administrator with a new password\n"
    store = CatalogStore.open(catalog_url)
    try:
        assert store.unit_of_work.snapshot().grants.administrators() == (local_user("alice", 1),)
        records = store.audit.read(AuditFilter(), 20)
        assert [record.entry.action for record in records].count("RECOVER ADMINISTRATOR") == 2
        assert {record.entry.reason for record in records} == {"zonectl admin recover"}
        assert all(PASSWORD not in f"{record}" for record in records)
    finally:
        store.close()


@pytest.mark.parametrize(
    ("options", "stdin", "code", "words"),
    [
        ((), "x", 64, "--password-stdin"),
        (("--password-stdin",), "\n", 64, "the password is empty"),
        (("--password-stdin",), "short\n", 1, "a password has 8 to 256 characters"),
        (("--password-stdin", "--user", "a b"), f"{PASSWORD}\n", 1, "a b"),
        (("--password-stdin", "--user", "viewer"), f"{PASSWORD}\n", 1, "viewer"),
    ],
)
def test_what_is_refused_changes_nothing(
    recover: Recover, url: str, options: tuple[str, ...], stdin: str, code: int, words: str
) -> None:
    migrate(url)
    ended, shown, errors = recover(*options, stdin=stdin)
    assert (ended, shown, words in errors) == (code, "", True), errors
    assert "Traceback" not in errors
    store = CatalogStore.open(url)
    assert store.unit_of_work.snapshot().grants.users == {}
    store.close()


def test_a_catalog_that_a_server_has_open_is_left_alone(recover: Recover, url: str) -> None:
    migrate(url)
    server = CatalogStore.open(url)
    try:
        code, _, errors = recover("--password-stdin")
        assert (code, len(errors.splitlines())) == (1, 1), errors
    finally:
        server.close()
    assert recover("--password-stdin")[0] == 0


def test_a_catalog_that_is_not_migrated_is_left_alone(recover: Recover) -> None:
    code, _, errors = recover("--password-stdin")
    assert (code, "zonectl migrate" in errors) == (1, True), errors
