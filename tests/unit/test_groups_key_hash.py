"""The key's partition is frozen: vectors published for MurmurHash3 x86 32-bit, and some of our own."""

from __future__ import annotations

import mmh3
import pytest

from rebalance.groups.calls.key_hash import KEY_HASH_NAME, key_hash, partition_of


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("", 0),
        ("test", 0xBA6BD213),
        ("Hello, world!", 0xC0363E43),
        ("The quick brown fox jumps over the lazy dog", 0x2E4FF723),
        ("a", 0x3C2569B2),
    ],
)
def test_published_vectors(key: str, expected: int) -> None:
    """Seed 0, unsigned."""
    assert key_hash(key) == expected
    assert KEY_HASH_NAME == "murmur3-32"


def test_against_a_slow_implementation() -> None:
    """Keys are hashed as UTF-8; 400 keys agree with an implementation written from the description."""
    for number in range(400):
        key = "ключ-" * (number % 3) + f"key/{number * 7919}" + "é" * (number % 5)
        assert key_hash(key) == slow_murmur3(key.encode()) == mmh3.hash(key.encode(), 0, signed=False)


@pytest.mark.parametrize(
    ("key", "partitions", "partition"),
    [("", 25, 0), ("a", 25, 0x3C2569B2 % 25), ("test", 1, 0), ("test", 1024, 0xBA6BD213 % 1024)],
)
def test_partition(key: str, partitions: int, partition: int) -> None:
    """The hash modulo the number of partitions."""
    assert partition_of(key, partitions) == partition


def test_no_partitions() -> None:
    """A zone without partitions has no place for a key."""
    with pytest.raises(ValueError, match="at least one partition"):
        partition_of("a", 0)


def slow_murmur3(data: bytes) -> int:
    mask = 0xFFFFFFFF

    def rotate(value: int, bits: int) -> int:
        return ((value << bits) | (value >> (32 - bits))) & mask

    def mix(block: bytes) -> int:
        return rotate(int.from_bytes(block, "little") * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask

    state, whole = 0, len(data) // 4 * 4
    for start in range(0, whole, 4):
        state = (rotate(state ^ mix(data[start : start + 4]), 13) * 5 + 0xE6546B64) & mask
    if data[whole:]:
        state ^= mix(data[whole:])
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B & mask
    state = (state ^ state >> 13) * 0xC2B2AE35 & mask
    return state ^ state >> 16
