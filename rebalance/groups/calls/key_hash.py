"""Partition of a key, by its hash. Frozen: changing it would lose every key that is stored."""

from __future__ import annotations

import mmh3

KEY_HASH_NAME = "murmur3-32"


def key_hash(key: str) -> int:
    """MurmurHash3 x86 32-bit, seed 0, of the key in UTF-8, unsigned."""
    return int(mmh3.hash(key.encode(), 0, signed=False))


def partition_of(key: str, partitions: int) -> int:
    """``0 <= result < partitions``. Raises ValueError when there are no partitions."""
    if partitions < 1:
        raise ValueError(f"a zone has at least one partition, not {partitions}")
    return key_hash(key) % partitions
