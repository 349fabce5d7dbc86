"""Administrators that are made beside a server: that of ``up``, with its token, and one that is recovered. On a
real catalog in SQLite."""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.bootstrap.catalog_administrators import provide_token, recover, recovery_lines
from app.security.administrator import (
    RENEWED_WITH_LEFT_US,
    SHOWN_US,
    TOKEN_LIFE_US,
    administrator_commands,
    keep_local_token,
)
from app.security.passwords import PasswordChecks, StoredPassword, hash_password
from app.sql.engine.executor import CatalogExecutor
from app.sql.plan.member_counts import MemberCounts
from catalog.core.audit import Action, Actor, AuditFilter
from catalog.core.authorisation import READY_GRANTS, local_user, role
from catalog.core.credentials import digest_of
from catalog.core.errors import StatementError
from catalog.core.messages import AlterUser, DropUser, Name, Secret
from catalog.core.snapshot import ZoneDefaults
from tests.fixtures.databases import migrated_file

NOW = 1_800_000_000_000_000
UP = Actor("zonectl up")
ADMIN, ADMINISTRATOR = local_user("admin", 1), role("administrator")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return migrated_file(tmp_path)


@pytest.fixture
async def catalog(url: str) -> AsyncIterator[CatalogExecutor]:
    opened = CatalogExecutor(url, ZoneDefaults(), MemberCounts(lambda _: ()), hash_password)
    await opened.open(lambda: None)
    yield opened
    await opened.close()


async def test_the_first_start_makes_an_administrator_and_its_token(
    catalog: CatalogExecutor, tmp_path: Path
) -> None:
    file = tmp_path / "admin.token"
    assert await keep_local_token(catalog, file, NOW, UP) == ""
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    grants = (await catalog.snapshot()).grants
    assert grants.administrators() == (ADMIN,)
    assert grants.users[ADMIN].password_hash is None
    secret = file.read_text().strip()
    token = await catalog.token(digest_of(secret))
    assert token is not None
    assert (token.owner, token.scope, token.expires_us) == (ADMIN, None, NOW + TOKEN_LIFE_US)
    records = await catalog.audit(AuditFilter(), 10)
    assert {record.entry.action for record in records} >= {"CREATE USER", "GRANT", Action.CREATE_TOKEN.value}
    assert {record.entry.actor.name for record in records} == {"zonectl up"}
    assert all(secret not in record.entry.details for record in records)


async def test_a_token_is_kept_until_a_third_of_its_life_is_left(
    catalog: CatalogExecutor, tmp_path: Path
) -> None:
    file = tmp_path / "admin.token"
    await keep_local_token(catalog, file, NOW, UP)
    first = file.read_text()
    late = NOW + TOKEN_LIFE_US - RENEWED_WITH_LEFT_US
    assert await keep_local_token(catalog, file, late - 1, UP) == ""
    assert file.read_text() == first
    assert await keep_local_token(catalog, file, late, UP) == ""
    assert file.read_text() != first
    renewed = await catalog.token(digest_of(file.read_text().strip()))
    assert renewed is not None
    assert renewed.is_valid(late + TOKEN_LIFE_US - 1)


async def test_a_revoked_token_is_replaced(catalog: CatalogExecutor, tmp_path: Path) -> None:
    file = tmp_path / "admin.token"
    await keep_local_token(catalog, file, NOW, UP)
    first = file.read_text()
    await catalog.revoke_token(digest_of(first.strip())[:12], NOW + 1)
    assert await keep_local_token(catalog, file, NOW + 2, UP) == ""
    assert file.read_text() != first


async def test_a_file_that_is_no_text_holds_no_token(catalog: CatalogExecutor, tmp_path: Path) -> None:
    """The file is replaced like one whose token is not known; what administrators did with the user stays."""
    file = tmp_path / "admin.token"
    file.write_bytes(b"\xff\n")
    assert await keep_local_token(catalog, file, NOW, UP) == ""
    assert await catalog.token(digest_of(file.read_text().strip())) is not None
    await catalog.run(administrator_commands((await catalog.snapshot()).grants, "anna"), ())
    await catalog.run([AlterUser(Name("admin"), is_active=False)], ())
    file.write_bytes(b"\xff\n")
    assert "cannot log in" in await keep_local_token(catalog, file, NOW, UP)


async def administrators(catalog: CatalogExecutor) -> list[str]:
    return [one.name for one in (await catalog.snapshot()).grants.administrators()]


async def test_what_administrators_did_with_the_user_stays(catalog: CatalogExecutor, tmp_path: Path) -> None:
    """The removal of the file, by a user who may write the data directory, ends that."""
    file = tmp_path / "admin.token"
    await keep_local_token(catalog, file, NOW, UP)
    await catalog.run(administrator_commands((await catalog.snapshot()).grants, "anna"), ())
    for change in (AlterUser(Name("admin"), is_active=False), DropUser(Name("admin"))):
        await catalog.run([change], ())
        reason = await keep_local_token(catalog, file, NOW + TOKEN_LIFE_US, UP)
        assert "user admin does not exist or cannot log in" in reason
        assert "admin" not in await administrators(catalog)
    file.unlink()
    assert await keep_local_token(catalog, file, NOW, UP) == ""
    assert await administrators(catalog) == ["admin", "anna"]


async def test_users_of_an_earlier_release_stay_beside_the_administrator(
    catalog: CatalogExecutor, tmp_path: Path
) -> None:
    """``admin`` may be there already, without any role."""
    grants = (await catalog.snapshot()).grants
    await catalog.run([administrator_commands(grants, "admin")[0]], ())
    assert await keep_local_token(catalog, tmp_path / "admin.token", NOW, UP) == ""
    assert (await catalog.snapshot()).grants.roles_of[ADMIN] == {ADMINISTRATOR}


async def test_a_file_without_a_catalog_that_knows_it_is_as_none(
    catalog: CatalogExecutor, tmp_path: Path
) -> None:
    """The catalog was removed, the file was not."""
    file = tmp_path / "admin.token"
    file.write_text("zkt_of-another-catalog\n")
    assert await keep_local_token(catalog, file, NOW, UP) == ""
    assert (await catalog.snapshot()).grants.administrators() == (ADMIN,)


def test_commands_say_what_they_do_without_the_password() -> None:
    commands = administrator_commands(READY_GRANTS, "anna", Secret("a password"))
    assert [command.source for command in commands] == [
        "CREATE USER anna PASSWORD '********'",
        "GRANT administrator TO anna",
    ]


async def test_a_recovered_administrator_logs_in_and_is_shown_for_seven_days(url: str) -> None:
    assert await recover(url, "anna", "a first password")
    assert not await recover(url, "anna", "another password")
    with pytest.raises(StatementError, match="PASSWORD_INVALID"):
        await recover(url, "berta", "short")
    opened = CatalogExecutor(url, ZoneDefaults(), MemberCounts(lambda _: ()))
    await opened.open(lambda: None)
    checks = PasswordChecks()
    try:
        grants = (await opened.snapshot()).grants
        (user,) = grants.users.values()
        assert grants.administrators() == (user.principal,)
        for password, is_right in (("another password", True), ("a first password", False)):
            stored = StoredPassword("anna", user.password_hash, user.changed_version)
            assert await checks.is_right(stored, password) is is_right
        lines = await recovery_lines(opened)
        assert len(lines) == 2
        assert all(
            line.startswith("anna was made an administrator by `zonectl admin recover`") for line in lines
        )
        (newest, _) = await opened.recoveries(0)
        assert len(await opened.recoveries(newest.at_us + 1)) == 0
        assert SHOWN_US == 7 * 86_400 * 1_000_000
    finally:
        checks.close()
        await opened.close()


async def test_a_token_is_provided_before_a_server_opens_the_catalog(url: str, tmp_path: Path) -> None:
    file = tmp_path / "admin.token"
    assert await provide_token(url, file) == ""
    first = file.read_text()
    assert await provide_token(url, file) == ""
    assert file.read_text() == first
