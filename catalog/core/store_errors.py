"""Rows of the table of errors for stores that do not answer, are full, disagree, or cannot be read."""

from __future__ import annotations

from catalog.core.error_rows import ErrorRow, ProtocolType

CATALOG_UNAVAILABLE = ErrorRow(
    7001,
    "58000",
    503,
    "The catalog is not available",
    "Try again when its database is available.",
    ProtocolType.EXTERNAL,
)
METASTORE_UNAVAILABLE = ErrorRow(
    7002,
    "58000",
    503,
    "The metastore is not available",
    "Try again when etcd is available.",
    ProtocolType.EXTERNAL,
)
METASTORE_DIVERGED = ErrorRow(
    7004,
    "55000",
    503,
    "Catalog and metastore do not match",
    "Restore the matching backup, or run `zonectl metastore adopt`.",
    ProtocolType.EXTERNAL,
)
RECORD_NOT_READABLE = ErrorRow(
    7020,
    "55000",
    503,
    "A record in the metastore cannot be read",
    "Restore or delete the key that the message names, or use a build that reads its format.",
    ProtocolType.EXTERNAL,
)
METASTORE_FULL = ErrorRow(
    7005,
    "53100",
    503,
    "The metastore is full",
    "Compact and defragment etcd, disarm its NOSPACE alarm, and try again.",
    ProtocolType.INSUFFICIENT_RESOURCES,
)
PARTITION_FULL = ErrorRow(
    7010,
    "53100",
    507,
    "The partition's store is full",
    "Nothing was written. Compaction runs by itself; if it stays full, move data or raise the quota.",
    ProtocolType.INSUFFICIENT_RESOURCES,
)
PARTITION_UNAVAILABLE = ErrorRow(
    7003,
    "58000",
    503,
    "The partition is not available",
    "Check its status for the cause, and try again.",
    ProtocolType.EXTERNAL,
)
WRONG_GENERATION = ErrorRow(
    7011,
    "40001",
    503,
    "Another generation of the partition's group answers",
    "Send it again: nothing was written, and the routing map follows the metastore.",
    ProtocolType.EXTERNAL,
)
REPLICA_BEHIND = ErrorRow(
    7006,
    "58000",
    504,
    "No replica is current enough for the read",
    "Try again, accept older data, or read from the leader.",
    ProtocolType.EXTERNAL,
)
