"""Bounds of a store server, and its waiting times. Times in milliseconds, sizes in bytes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """``ttl_ms``: after that long without a heartbeat a server is failed; it serves ``margin_ms`` less.
    ``disk_wait_ms``: a transaction that takes longer ends the process, as nobody else sees that a disk hangs.
    ``leave_ms``: after that a server that wishes to leave just ends.
    ``switch_ms``: AFFINITY_CHANGE is asked for at most once in so long.
    ``pending_max``: also of requests that wait for one write.
    ``log_keep``: records of a partition that stay for history, ``log_reserved`` while a copy is being filled.
    ``fill_batches_max``: of one copy, on their way to the disk.
    ``bulk_bytes``: of a transaction that fills or clears copies.
    ``id_keep_ms`` is longer than any client repeats a write."""

    ttl_ms: int = 5_000
    margin_ms: int = 1_000
    suspect_ms: int = 2_000
    exchange_wait_ms: int = 30_000
    resend_ms: int = 500
    leave_ms: int = 3_000
    disk_wait_ms: int = 15_000
    notify_ms: int = 100
    switch_ms: int = 1_000
    pending_max: int = 1_024
    waiting_max: int = 4_096
    held_max: int = 4_096
    value_bytes_max: int = 1 << 20
    transaction_bytes_max: int = 4 << 20
    transaction_age_ms: int = 60_000
    batch_bytes: int = 256 << 10
    bulk_bytes: int = 1 << 20
    fills_max: int = 8
    fill_batches_max: int = 8
    tail_keys_max: int = 10_000
    log_keep: int = 10_000
    log_reserved: int = 100_000
    id_keep_ms: int = 900_000
