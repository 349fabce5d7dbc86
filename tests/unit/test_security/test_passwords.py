"""Passwords are stored as argon2id, and compared once a minute or after any change of the user."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from statistics import median

import pytest
import pytest_asyncio

from app.security.passwords import (
    AT_ONCE,
    OF_ADDRESS_MAX,
    PASSWORD_BYTES_MAX,
    REMEMBERED_S,
    WAITING_MAX,
    PasswordChecks,
    StoredPassword,
    hash_password,
)
from catalog.core.errors import ErrorKind, RefusedError

RIGHT = "correct horse battery staple"
ANNA = StoredPassword("anna", hash_password(RIGHT), revision=3)


class ManualClock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest_asyncio.fixture
async def checks(clock: ManualClock) -> AsyncIterator[PasswordChecks]:
    opened = PasswordChecks(clock)
    yield opened
    opened.close()


def test_a_password_is_stored_as_argon2id_with_a_salt_of_its_own() -> None:
    assert ANNA.hash is not None
    assert ANNA.hash.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert hash_password(RIGHT) != ANNA.hash
    assert RIGHT not in ANNA.hash


@pytest.mark.parametrize("password", ["", "x" * (PASSWORD_BYTES_MAX + 1)])
def test_an_empty_or_endless_password_is_not_stored(password: str) -> None:
    with pytest.raises(RefusedError, match="1 to 1024 bytes"):
        hash_password(password)


async def test_the_right_password_is_right_and_others_are_not(checks: PasswordChecks) -> None:
    assert await checks.is_right(ANNA, RIGHT)
    for wrong in ("", "correct horse", RIGHT + " ", "x" * 5_000, "\ud800"):
        assert not await checks.is_right(ANNA, wrong)


async def test_nobody_logs_in_as_a_user_without_a_password_or_as_no_user(checks: PasswordChecks) -> None:
    for stored in (None, replace(ANNA, hash=None), replace(ANNA, hash="not a hash")):
        assert not await checks.is_right(stored, RIGHT)
        assert not await checks.is_right(stored, "")


async def test_a_success_is_remembered_for_a_minute(checks: PasswordChecks, clock: ManualClock) -> None:
    assert await checks.is_right(ANNA, RIGHT)
    clock.now_s = REMEMBERED_S - 1
    assert await checks.is_right(ANNA, RIGHT)
    assert checks.checks == 1
    clock.now_s = REMEMBERED_S
    assert await checks.is_right(ANNA, RIGHT)
    assert checks.checks == 2


@pytest.mark.parametrize(
    "changed",
    [
        replace(ANNA, revision=4),
        replace(ANNA, hash=hash_password("another")),
        replace(ANNA, user="berta", hash=hash_password("another")),
        None,
    ],
)
async def test_a_success_is_forgotten_at_any_change_of_the_user(
    checks: PasswordChecks, changed: StoredPassword | None
) -> None:
    assert await checks.is_right(ANNA, RIGHT)
    before = checks.checks
    is_right = await checks.is_right(changed, RIGHT)
    assert checks.checks == before + 1
    assert is_right is (changed is not None and changed.hash == ANNA.hash)


async def test_a_failure_is_not_remembered(checks: PasswordChecks) -> None:
    for number in range(1, 4):
        assert not await checks.is_right(ANNA, "wrong")
        assert checks.checks == number


async def test_requests_that_send_the_same_at_once_share_one_check(checks: PasswordChecks) -> None:
    verdicts = await asyncio.gather(*(checks.is_right(ANNA, RIGHT) for _ in range(50)))
    assert all(verdicts)
    assert checks.checks == 1


async def test_a_request_that_is_given_up_ends_no_check_of_others(checks: PasswordChecks) -> None:
    given_up = asyncio.create_task(checks.is_right(ANNA, RIGHT))
    other = asyncio.create_task(checks.is_right(ANNA, RIGHT))
    await asyncio.sleep(0)
    given_up.cancel()
    assert await other
    assert checks.checks == 1


async def test_the_line_of_checks_is_bounded(checks: PasswordChecks) -> None:
    waiting = [
        asyncio.create_task(checks.is_right(ANNA, f"wrong {n}", f"192.0.2.{n}"))
        for n in range(AT_ONCE + WAITING_MAX)
    ]
    await asyncio.sleep(0)
    with pytest.raises(RefusedError) as refused:
        await checks.is_right(ANNA, "one more")
    assert refused.value.kind is ErrorKind.LOGIN_LIMITED
    assert not any(await asyncio.gather(*waiting))
    assert await checks.is_right(ANNA, RIGHT)


async def test_one_address_does_not_fill_the_line_of_checks(checks: PasswordChecks) -> None:
    guesses = [f"wrong {n}" for n in range(OF_ADDRESS_MAX)]
    waiting = [asyncio.create_task(checks.is_right(ANNA, guess, "2001:db8::1")) for guess in guesses]
    await asyncio.sleep(0)
    with pytest.raises(RefusedError) as refused:
        await checks.is_right(ANNA, "one more", "2001:db8::2")
    assert refused.value.kind is ErrorKind.LOGIN_LIMITED
    assert await checks.is_right(ANNA, RIGHT, "192.0.2.7")
    assert not any(await asyncio.gather(*waiting))
    assert not await checks.is_right(ANNA, "one more", "2001:db8::2")


async def test_an_unknown_user_costs_the_same_as_a_wrong_password(checks: PasswordChecks) -> None:
    """The time of an answer is that of its hash, which is processor time: medians differ by less than half
    on a busy machine, too."""

    async def seconds(stored: StoredPassword | None, number: int) -> float:
        begin = time.process_time()
        assert not await checks.is_right(stored, f"wrong {number}")
        return time.process_time() - begin

    known, unknown = [], []
    for number in range(15):
        known.append(await seconds(ANNA, number))
        unknown.append(await seconds(None, number))
    assert median(known) / 2 < median(unknown) < 2 * median(known)
