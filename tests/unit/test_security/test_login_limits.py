"""Failed logins are limited by address, and by user and address; no user is locked."""

from __future__ import annotations

import random

from app.security.login_check import BY_ADDRESS_MAX, BY_USER_MAX, KEYS_MAX, WINDOW_S, LoginLimits

HOME, ELSEWHERE = "192.0.2.1", "198.51.100.7"


def fail(limits: LoginLimits, count: int, address: str = HOME, user: str = "anna", at: float = 0.0) -> None:
    for _ in range(count):
        limits.failed(address, user, at)


def test_a_user_is_held_up_at_the_address_of_its_failures_only() -> None:
    limits = LoginLimits()
    fail(limits, BY_USER_MAX)
    assert limits.wait_s(HOME, "anna", 0.0) > 0
    assert limits.wait_s(HOME, "berta", 0.0) == 0
    assert limits.wait_s(ELSEWHERE, "anna", 0.0) == 0


def test_an_address_is_held_up_whatever_users_it_tries() -> None:
    limits = LoginLimits()
    for number in range(BY_ADDRESS_MAX):
        assert limits.wait_s(HOME, f"user{number}", 0.0) == 0
        fail(limits, 1, user=f"user{number}")
    assert limits.wait_s(HOME, "another", 0.0) > 0
    assert limits.wait_s(ELSEWHERE, "another", 0.0) == 0


def test_the_wait_ends_when_the_oldest_failure_that_counts_is_a_minute_old() -> None:
    limits = LoginLimits()
    for second in range(BY_USER_MAX):
        fail(limits, 1, at=float(second))
    assert limits.wait_s(HOME, "anna", 10.0) == WINDOW_S - 10.0
    assert limits.wait_s(HOME, "anna", WINDOW_S - 0.001) > 0
    assert limits.wait_s(HOME, "anna", WINDOW_S) == 0
    fail(limits, 1, at=WINDOW_S)
    assert limits.wait_s(HOME, "anna", WINDOW_S) > 0


def test_spread_failures_hold_nobody_up() -> None:
    limits = LoginLimits()
    for number in range(100):
        at = number * (WINDOW_S / (BY_USER_MAX - 1))
        assert limits.wait_s(HOME, "anna", at) == 0
        fail(limits, 1, at=at)


def test_at_most_ten_logins_fail_in_any_minute_from_one_address() -> None:
    """Against a list of all attempts, with random times and users."""
    for seed in range(50):
        draw = random.Random(seed)
        limits, failures, now = LoginLimits(), [], 0.0
        for _ in range(200):
            now += draw.choice((0.0, 0.5, 3.0, 20.0))
            user = draw.choice(("anna", "berta", "carla"))
            recent = [who for at, who in failures if at + WINDOW_S > now]
            is_free = len(recent) < BY_ADDRESS_MAX and recent.count(user) < BY_USER_MAX
            assert (limits.wait_s(HOME, user, now) == 0) is is_free
            if is_free:
                limits.failed(HOME, user, now)
                failures.append((now, user))


def test_an_ipv6_network_counts_as_one_address() -> None:
    limits = LoginLimits()
    for number in range(BY_ADDRESS_MAX):
        fail(limits, 1, address=f"2001:db8:1:2::{number:x}", user=f"user{number}")
    assert limits.wait_s("2001:db8:1:2:ffff::1", "another", 0.0) > 0
    assert limits.wait_s("2001:db8:1:3::1", "another", 0.0) == 0


def test_the_loopback_addresses_of_a_machine_count_as_one() -> None:
    """Each of its users can send from any of them."""
    limits = LoginLimits()
    for number in range(BY_ADDRESS_MAX):
        fail(limits, 1, address=f"127.0.{number}.1", user=f"user{number}")
    for address in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"):
        assert limits.wait_s(address, "another", 0.0) > 0
    assert limits.wait_s("192.0.2.7", "another", 0.0) == 0


def test_an_ipv4_address_in_ipv6_is_the_same_address() -> None:
    limits = LoginLimits()
    fail(limits, BY_USER_MAX)
    assert limits.wait_s(f"::ffff:{HOME}", "anna", 0.0) > 0


def test_names_that_no_user_has_are_remembered_in_short() -> None:
    limits = LoginLimits()
    for number in range(BY_USER_MAX):
        fail(limits, 1, user="x" * 60_000 + str(number))
    assert limits.wait_s(HOME, "x" * 60_000, 0.0) > 0


def test_what_is_remembered_is_bounded() -> None:
    limits = LoginLimits()
    fail(limits, BY_USER_MAX, address="192.0.2.255")
    for number in range(KEYS_MAX):
        fail(limits, 1, address=f"10.0.{number >> 8}.{number & 255}")
    assert limits.wait_s("192.0.2.255", "anna", 0.0) == 0
    assert limits.wait_s("10.0.0.0", "anna", 0.0) == 0
